# Functions that every CMakeLists of the project uses: one place for flags, visibility and test registration.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
# -g1 keeps line numbers for back traces and sanitizers at a third of the size and link time of -g.
# Instrumented code takes twice as long to optimise, and is not for timing. AddressSanitizer's tests gain less from it than
# it costs; ThreadSanitizer would watch each local variable without.
if(REPRISE_SANITIZE MATCHES "^address")  # not for fuzzing
  set(optimise -O0)
elseif(REPRISE_SANITIZE)
  set(optimise -O1)
else()
  set(optimise -O2)
endif()
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "${optimise} -g1 -DNDEBUG")
set(CMAKE_C_FLAGS_RELWITHDEBINFO "${optimise} -g1 -DNDEBUG")

# What compiling and linking cost goes into cpu.log, for scripts/cpu_report.py. Then ccache, where it is installed.
set(timed ${PROJECT_SOURCE_DIR}/scripts/timed.sh ${PROJECT_BINARY_DIR}/cpu.log)
find_program(REPRISE_CCACHE ccache)
set(cached)
if(REPRISE_CCACHE)
  # With precompiled headers ccache is told that no source looks at __DATE__ or at macros that a header might have had.
  # Copies of the tree share what it has: it hands the compiler paths that are relative to the build folder.
  set(cached env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
             ${REPRISE_CCACHE})
endif()
set(CMAKE_C_COMPILER_LAUNCHER ${timed} ${cached})
set(CMAKE_CXX_COMPILER_LAUNCHER ${timed} ${cached})
set(CMAKE_CXX_LINKER_LAUNCHER ${timed})

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)

# Flags for our own code only; users of an installed tree see none of them.
add_library(reprise_build_flags INTERFACE)
target_compile_options(reprise_build_flags INTERFACE -Wall -Wextra -Wshadow)
target_compile_options(reprise_build_flags INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)  # for ccache
# Nobody replaces functions of our libraries, so calls within one need not look.
target_compile_options(reprise_build_flags INTERFACE -fno-semantic-interposition)
# Installed libraries name sources (in logs and messages), not the folder that they were built in. The second form of the
# folder is that of ccache.
if(NOT REPRISE_SANITIZE)
  file(RELATIVE_PATH above ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR}/)
  target_compile_options(reprise_build_flags INTERFACE -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=
                                                       -fmacro-prefix-map=${above}=)
endif()
# The same flags by hand, in CI and for users. Other compilers have other warnings: they are shown.
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(reprise_build_flags INTERFACE -Werror)
endif()
if(REPRISE_SANITIZE)
  target_compile_options(reprise_build_flags INTERFACE -fsanitize=${REPRISE_SANITIZE} -fno-omit-frame-pointer
                                                       -fno-sanitize-recover=undefined
                                                       # C callers pass any number for an enum; we check it and refuse.
                                                       $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=enum>
                                                       # Half of the time to compile; AddressSanitizer sees what
                                                       # matters of them, and x86-64 the alignment where it counts.
                                                       -fno-sanitize=null,alignment,object-size
                                                       $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=vptr>
                                                       # Warnings are errors where nothing is instrumented.
                                                       -Wno-error)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(reprise_build_flags INTERFACE
      -Wno-maybe-uninitialized  # GCC sees false paths through instrumented code.
      -Wno-tsan)                # Fences: the data behind ours is atomic, see HACKING.md.
  endif()
  target_link_options(reprise_build_flags INTERFACE -fsanitize=${REPRISE_SANITIZE})
endif()
# What is under test keeps its flags; the tests themselves compile in half of the time like this.
add_library(reprise_test_flags INTERFACE)
target_compile_options(reprise_test_flags INTERFACE -O0)
if(REPRISE_SANITIZE)
  target_compile_options(reprise_test_flags INTERFACE -fno-sanitize=undefined)
endif()
target_include_directories(reprise_build_flags INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)

# reprise_precompiled(<target> <kind>): the headers that most sources include are read once, compiled, which halves the
# time of a small source. `make lint` compiles without, so that a missing #include is found. Of each kind (core, facade,
# test), whose members are compiled with the same flags, one target that nobody links holds the result.
if(REPRISE_PRECOMPILE AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/precompiled.cc CONTENT "int main() { return 0; }\n")
endif()
function(reprise_precompiled target kind)
  if(NOT REPRISE_PRECOMPILE OR NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    return()
  endif()
  set(owner reprise_headers_${kind})
  if(NOT TARGET ${owner})
    set(headers <fmt/format.h> <algorithm> <array> <atomic> <cstring> <functional> <map> <memory> <mutex> <set>
                <string> <thread> <unordered_map> <vector>)
    if(kind STREQUAL test)
      add_executable(${owner} EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/precompiled.cc)
      target_link_libraries(${owner} PRIVATE reprise_build_flags reprise_test_flags reprise_fmt GTest::gmock
                                             Threads::Threads)
      list(APPEND headers <gtest/gtest.h>)
    else()
      add_library(${owner} OBJECT EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/precompiled.cc)
      target_link_libraries(${owner} PRIVATE reprise_build_flags reprise_fmt Threads::Threads)
    endif()
    if(kind STREQUAL core)
      set_target_properties(${owner} PROPERTIES CXX_VISIBILITY_PRESET default VISIBILITY_INLINES_HIDDEN OFF)
    endif()
    if(kind STREQUAL facade AND REPRISE_SANITIZE)
      target_compile_options(${owner} PRIVATE -O0)  # as its members, or it would not be taken
    endif()
    target_precompile_headers(${owner} PRIVATE ${headers})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${owner})
endfunction()

# Sources of a library are compiled in batches: what they include and instantiate is paid once for eight of them, half of
# the time for all. Therefore names in anonymous namespaces must differ within a library. `make lint` compiles each alone.

# reprise_layer(<name> SOURCES <files> [LIBS <layers below>])
# One layer of the core: an object library that ends up in libreprise.so. LIBS are the layers that it may include;
# scripts/check_layers.py holds the same table against the #include lines.
function(reprise_layer name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBS" ${ARGN})
  add_library(reprise_${name} OBJECT ${arg_SOURCES})
  target_link_libraries(reprise_${name} PUBLIC reprise_build_flags reprise_fmt Threads::Threads ${arg_LIBS})
  # The version script of libreprise.so decides what is visible: namespace reprise, and nothing that came along with it.
  set_target_properties(reprise_${name} PROPERTIES CXX_VISIBILITY_PRESET default VISIBILITY_INLINES_HIDDEN OFF)
  set_property(GLOBAL APPEND PROPERTY REPRISE_LAYERS reprise_${name})
  set_target_properties(reprise_${name} PROPERTIES UNITY_BUILD ${REPRISE_UNITY} UNITY_BUILD_BATCH_SIZE 8)
  reprise_precompiled(reprise_${name} core)
endfunction()

# reprise_shared(<target> OUTPUT <file stem> SOURCES <files> SYMBOLS <version script> [LIBS <libs>])
# A library that programs link by name. Only what the version script lists is visible, so that nothing of ours can
# clash with what a program or libtorch brings along.
function(reprise_shared target)
  cmake_parse_arguments(arg "" "OUTPUT;SYMBOLS" "SOURCES;LIBS" ${ARGN})
  add_library(${target} SHARED ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE reprise_build_flags reprise_fmt Threads::Threads ${arg_LIBS})
  target_include_directories(${target} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                                 $<INSTALL_INTERFACE:include>)
  target_link_options(${target} PRIVATE -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/${arg_SYMBOLS}
                                        -Wl,--exclude-libs,ALL)
  reprise_precompiled(${target} facade)
  if(REPRISE_SANITIZE)
    target_compile_options(${target} PRIVATE -O0)  # they check arguments: compiling costs more than they run
  endif()
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD ${REPRISE_UNITY} UNITY_BUILD_BATCH_SIZE 8
    OUTPUT_NAME ${arg_OUTPUT}
    LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${arg_SYMBOLS}
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib64
    BUILD_RPATH "$ORIGIN" INSTALL_RPATH "$ORIGIN")
  # A program that has an inline function of ours, too, keeps it to itself: the library's is the instrumented one.
  target_link_options(${target} PRIVATE -Wl,-Bsymbolic-functions)
  if(NOT REPRISE_SANITIZE)
    # A forgotten symbol is an error here, not in the user's program.
    target_link_options(${target} PRIVATE -Wl,--no-undefined)
  endif()
endfunction()

include(${PROJECT_SOURCE_DIR}/cmake/RepriseTestObjects.cmake)

# Sets <result>: whether this row leaves out what is NOT_UNDER the one list of sanitizers, or FULL_UNDER the other.
function(reprise_is_left_out result not_under full_under)
  if(NOT REPRISE_FULL_TESTS)
    list(APPEND not_under ${full_under})
  endif()
  set(${result} FALSE PARENT_SCOPE)
  foreach(sanitizer IN LISTS not_under)
    if(REPRISE_SANITIZE MATCHES ${sanitizer})
      set(${result} TRUE PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

# One run of a GoogleTest program; its results and logs lie below results/.
function(reprise_add_run name program labels timeout environment arguments)
  add_test(NAME ${name} COMMAND ${program} ${arguments} --gtest_output=xml:${PROJECT_BINARY_DIR}/results/${name}.xml)
  set(variables ASCEND_PROCESS_LOG_PATH=${PROJECT_BINARY_DIR}/results/log REPRISE_COSTS=default ${environment})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout} LABELS "${labels}" ENVIRONMENT "${variables}")
endfunction()

# reprise_test(<name> SOURCES <files> [LIBS <libs>] [LABELS <labels>] [TIMEOUT <s>] [DEFINES <defs>]
#              [NOT_UNDER <sanitizers>] [FULL_UNDER <sanitizers>] [OPTIMISED] [INSTRUMENTED])
# A GoogleTest program. NOT_UNDER thread: left out of that row, where it would cost time and cannot find anything that the
# other rows do not. FULL_UNDER thread: left out of the short form of that row (`make test`) and part of the full one
# (`make test-all`), because what it does there other programs of the row do, too. OPTIMISED: for tests that compute much
# themselves. INSTRUMENTED: sanitizers look at its objects, too, because its subject is inline code of ours, or because the
# sanitizer takes the place of what it counts; others are compiled once for all rows, see RepriseTestObjects.cmake.
function(reprise_test name)
  cmake_parse_arguments(arg "OPTIMISED;INSTRUMENTED" "TIMEOUT" "SOURCES;LIBS;LABELS;DEFINES;NOT_UNDER;FULL_UNDER" ${ARGN})
  reprise_is_left_out(is_left_out "${arg_NOT_UNDER}" "${arg_FULL_UNDER}")
  if(is_left_out)
    return()
  endif()
  # Ends a program that hangs, on a machine under whatever load; how long a test takes is not tested.
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 600)
  endif()
  add_executable(${name})
  target_link_libraries(${name} PRIVATE reprise_build_flags reprise_fmt test_support GTest::gmock GTest::gtest_main
                                        Threads::Threads ${arg_LIBS})
  if(REPRISE_TEST_OBJECTS AND NOT arg_INSTRUMENTED)
    reprise_take_objects(${name} ${arg_SOURCES})
  else()
    target_sources(${name} PRIVATE ${arg_SOURCES})
    if(NOT arg_OPTIMISED)
      target_link_libraries(${name} PRIVATE reprise_test_flags)
      reprise_precompiled(${name} test)
    endif()
  endif()
  target_compile_definitions(${name} PRIVATE ${arg_DEFINES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  reprise_add_run(${name} ${name} "${arg_LABELS}" ${arg_TIMEOUT} "" "")
endfunction()

# reprise_test_again(<name> <program> ENVIRONMENT <variables> [ARGUMENTS <arguments>] [FULL_UNDER <sanitizers>])
# A program of reprise_test once more, with other settings; nothing where the row leaves the program out. FULL_UNDER as
# above.
function(reprise_test_again name program)
  cmake_parse_arguments(arg "" "" "ENVIRONMENT;ARGUMENTS;FULL_UNDER" ${ARGN})
  reprise_is_left_out(is_left_out "" "${arg_FULL_UNDER}")
  if(is_left_out OR NOT TARGET ${program})
    return()
  endif()
  get_test_property(${program} LABELS labels)
  get_test_property(${program} TIMEOUT timeout)
  if(NOT labels)  # NOTFOUND
    set(labels "")
  endif()
  reprise_add_run(${name} ${program} "${labels}" ${timeout} "${arg_ENVIRONMENT}" "${arg_ARGUMENTS}")
endfunction()

# reprise_add_kernels(<name> <sources>): a kernel binary <name>.so, see include/reprise/kernel.h.
include(${PROJECT_SOURCE_DIR}/cmake/RepriseKernels.cmake)
