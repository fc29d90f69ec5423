#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where the CPU time of builds and tests goes.

    scripts/cpu_report.py               table by row of the last `make test`: build, tests, sum, objects, wall clock
    scripts/cpu_report.py --objects 20  also the folders and objects of each build tree that cost most to compile or link

Rows come from build/cpu_rows.tsv, which scripts/run_tests.sh writes: row, phase (build or test), CPU seconds, wall
seconds. Objects come from build/PRESET/cpu.log, which scripts/timed.sh writes: user seconds, system seconds, file. The
last line for a file counts; what ccache had costs next to nothing and stands there as that.
"""
import argparse
import collections
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent


def rows(path: pathlib.Path) -> dict[str, dict[str, list[float]]]:
    """Row -> phase -> [CPU seconds, wall seconds], in the order of the file."""
    table: dict[str, dict[str, list[float]]] = {}
    for line in path.read_text().splitlines():
        row, phase, cpu, wall = line.split("\t")
        sums = table.setdefault(row, {}).setdefault(phase, [0.0, 0.0])
        sums[0] += float(cpu)
        sums[1] += float(wall)
    return table


def objects(path: pathlib.Path) -> dict[str, float]:
    """File -> CPU seconds of the command that made it last."""
    made = {}
    for line in path.read_text().splitlines():
        fields = line.split("\t")
        if len(fields) == 3 and fields[2]:
            made[fields[2]] = float(fields[0]) + float(fields[1])
    return made


def print_rows(table: dict[str, dict[str, list[float]]]) -> None:
    print(f"{'CPU minutes':12} {'build':>7} {'tests':>7} {'sum':>7}   {'wall':>5}")
    total = collections.Counter()
    for row, phases in table.items():
        build, test = phases.get("build", [0.0, 0.0]), phases.get("test", [0.0, 0.0])
        print(f"{row:12} {build[0] / 60:7.1f} {test[0] / 60:7.1f} {(build[0] + test[0]) / 60:7.1f}   "
              f"{(build[1] + test[1]) / 60:5.1f}")
        total.update(build=build[0], test=test[0], wall=build[1] + test[1])
    print(f"{'all':12} {total['build'] / 60:7.1f} {total['test'] / 60:7.1f} {(total['build'] + total['test']) / 60:7.1f}   "
          f"{total['wall'] / 60:5.1f}")


def print_objects(tree: str, made: dict[str, float], most: int) -> None:
    folders = collections.Counter()
    for name, seconds in made.items():
        folders["/".join(name.split("/")[:3])] += seconds
    print(f"\n{tree}: {sum(made.values()):.0f} s for {len(made)} objects")
    for name, seconds in [*folders.most_common(most), *collections.Counter(made).most_common(most)]:
        print(f"  {seconds:7.1f} s  {name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=0, metavar="N", help="the N dearest folders and objects of each tree")
    parser.add_argument("--build-dir", type=pathlib.Path, default=ROOT / "build")
    options = parser.parse_args()
    path = options.build_dir / "cpu_rows.tsv"
    if not path.is_file():
        raise SystemExit(f"{path} is not there: run `make test` first")
    print_rows(rows(path))
    if options.objects > 0:
        for log in sorted(options.build_dir.glob("*/cpu.log")):
            print_objects(log.parent.name, objects(log), options.objects)


if __name__ == "__main__":
    main()
