#!/bin/bash
# timed.sh LOG COMMAND…: runs a compiler or linker and appends a line to LOG: CPU seconds (user, system), then what it
# made. scripts/cpu_report.py reads it.
log=$1
shift
made=
previous=
for argument; do
  [ "$previous" = -o ] && made=$argument
  previous=$argument
done
TIMEFORMAT=%U$'\t'%S
{ time "$@" 2>&3 3>&-; } 3>&2 2>"$log.$$"
status=$?
printf '%s\t%s\n' "$(<"$log.$$")" "$made" >>"$log"
rm -f "$log.$$"
exit $status
