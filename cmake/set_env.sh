#!/bin/bash
# Points build scripts and programs at this installation:  source set_env.sh
reprise_prefix="$(cd "$(dirname "${BASH_SOURCE[0]:-$0}")" && pwd)"
export ASCEND_HOME_PATH="${reprise_prefix}"
export ASCEND_TOOLKIT_HOME="${reprise_prefix}"
export LD_LIBRARY_PATH="${reprise_prefix}/lib64${LD_LIBRARY_PATH:+:${LD_LIBRARY_PATH}}"
export CMAKE_PREFIX_PATH="${reprise_prefix}${CMAKE_PREFIX_PATH:+:${CMAKE_PREFIX_PATH}}"
unset reprise_prefix
