# ascendc_library and its kin, for the CPU: what projects with kernels include from the toolkit.
#
#   ascendc_library(<name> [SHARED|STATIC] <sources…>)      a library, and aclrtlaunch_<kernel>.h for each kernel
#   ascendc_fatbin_library(<name> <sources…>)               <name>.o and <name>.so for aclrtBinaryLoadFromFile, installed
#                                                           below fatbin/<name>
#   ascendc_compile_definitions, ascendc_compile_options, ascendc_include_directories(<name> PRIVATE …)
#   host_intf_pub                                           a target with headers and library of the runtime
#
# Code for the vendor's processor does not run on a CPU. Beside each source with such kernels, add_custom.cpp, stands a
# host version, add_custom.reprise.cpp, written against <reprise/kernel.h>: kernels of the same names and parameters,
# and REPRISE_KERNEL_TABLE. It is compiled in place of the source, so that neither the CMakeLists.txt nor the program
# changes. A source that includes <reprise/kernel.h> itself is taken as it is. A structure that a kernel takes by value
# must be declared before its aclrtlaunch_<kernel>.h is included.
include_guard(DIRECTORY)
get_filename_component(reprise_ascendc_dir "${CMAKE_CURRENT_LIST_DIR}" REALPATH)
get_filename_component(reprise_ascendc_prefix "${reprise_ascendc_dir}/../../.." REALPATH)
# The functions are known in all folders of a project, and so is where they come from.
set(reprise_ascendc_dir "${reprise_ascendc_dir}" CACHE INTERNAL "")
set(reprise_ascendc_prefix "${reprise_ascendc_prefix}" CACHE INTERNAL "")

# reprise_add_kernels, and the targets Reprise::… for those who want them.
find_package(Reprise REQUIRED CONFIG PATHS "${reprise_ascendc_prefix}/lib/cmake/Reprise" NO_DEFAULT_PATH)

if(NOT TARGET host_intf_pub)
  add_library(host_intf_pub INTERFACE)
  target_include_directories(host_intf_pub INTERFACE "${reprise_ascendc_prefix}/include")
  target_link_libraries(host_intf_pub INTERFACE "${reprise_ascendc_prefix}/lib64/libascendcl.so")
endif()

# Sets `out` to the host versions of the sources; ends the configuration with all that are missing.
function(_reprise_host_versions caller name out)
  set(found)
  set(missing)
  set(example)
  if("${ARGN}" STREQUAL "")
    message(FATAL_ERROR "${caller}(${name}): no sources are given; name the files with kernels")
  endif()
  foreach(source IN LISTS ARGN)
    get_filename_component(path "${source}" ABSOLUTE)
    if(path MATCHES "\\.(h|hpp|hh)$")
      continue()
    endif()
    if(NOT EXISTS "${path}")
      message(FATAL_ERROR "${caller}(${name}): there is no file ${source}")
    endif()
    get_filename_component(folder "${path}" DIRECTORY)
    get_filename_component(stem "${path}" NAME_WLE)
    if(path MATCHES "\\.reprise\\.(cpp|cc|cxx)$")  # named on its own, or found by the GLOB that found its source
      list(APPEND found "${path}")
      continue()
    endif()
    set(host)
    foreach(suffix cpp cc cxx)
      if(NOT host AND EXISTS "${folder}/${stem}.reprise.${suffix}")
        set(host "${folder}/${stem}.reprise.${suffix}")
      endif()
    endforeach()
    file(READ "${path}" text)
    if(host)
      list(APPEND found "${host}")
    elseif(text MATCHES "#[ \t]*include[ \t]*[<\"]reprise/kernel\\.h[>\"]")
      list(APPEND found "${path}")
    else()
      string(REPLACE ";" " " text "${text}")
      string(REGEX MATCHALL "__global__[^;{(]*[ \t\r\n*][A-Za-z_][A-Za-z_0-9]*[ \t\r\n]*\\(" heads "${text}")
      list(TRANSFORM heads REPLACE ".*[ \t\r\n*]([A-Za-z_][A-Za-z_0-9]*)[ \t\r\n]*\\($" "\\1")
      list(REMOVE_DUPLICATES heads)
      list(JOIN heads ", " kernels)
      if(NOT kernels)
        set(kernels "none found")
      endif()
      list(APPEND missing "  ${source} (kernels: ${kernels}): ${stem}.reprise.cpp is missing")
      if(NOT example AND heads)
        list(GET heads 0 example)
      endif()
    endif()
  endforeach()
  if(missing)
    if(NOT example)
      set(example my_kernel)
    endif()
    list(JOIN missing "\n" missing)
    message(FATAL_ERROR "${caller}(${name}): these sources are code for the vendor's processor, and the device here is "
      "the CPU:\n${missing}\n"
      "Write a host version of the kernels beside each, under that name; it is compiled in its place, and nothing else "
      "changes:\n"
      "  #include <reprise/kernel.h>\n"
      "  REPRISE_KERNEL(${example}, REPRISE_KERNEL_VECTOR, (float* z, const float* x, uint64_t n)) {\n"
      "    for (uint64_t i = ctx.block_index; i < n; i += ctx.block_count) z[i] = x[i];\n"
      "  }\n"
      "  REPRISE_KERNEL_TABLE(${example})\n"
      "Or build kernels with reprise_add_kernels(<name> <sources>) and load them with aclrtBinaryLoadFromFile.")
  endif()
  list(REMOVE_DUPLICATES found)
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

# Splits the parameters of a kernel at commas outside of angle brackets; `out` gets "type|name" each, pointers as void.
function(_reprise_parameters text where out)
  string(REGEX REPLACE "[ \t\r\n]+" " " text "${text}")
  string(REPLACE "," ";" pieces "${text}")
  set(result)
  set(pending)
  foreach(piece IN LISTS pieces)
    if(pending)
      set(piece "${pending},${piece}")
    endif()
    string(REGEX REPLACE "[^<]" "" opened "${piece}")
    string(REGEX REPLACE "[^>]" "" closed "${piece}")
    string(LENGTH "${opened}" opened)
    string(LENGTH "${closed}" closed)
    if(NOT opened EQUAL closed)
      set(pending "${piece}")
      continue()
    endif()
    set(pending)
    string(STRIP "${piece}" piece)
    if(piece STREQUAL "" OR piece STREQUAL "void")
      continue()
    endif()
    if(NOT piece MATCHES "^(.*[^A-Za-z_0-9])([A-Za-z_][A-Za-z_0-9]*)$")
      message(FATAL_ERROR "${where}: the parameter \"${piece}\" has no name; write type and name")
    endif()
    set(type "${CMAKE_MATCH_1}")
    set(name "${CMAKE_MATCH_2}")
    if(type MATCHES "\\*")
      set(type "void*")
      if(piece MATCHES "^const |[^*]*const[^*]*\\*")
        set(type "const void*")
      endif()
    endif()
    string(STRIP "${type}" type)
    list(APPEND result "${type}|${name}")
  endforeach()
  set(${out} "${result}" PARENT_SCOPE)
endfunction()

# Writes what stands beside the host versions: a wrapper of each, so that its table has a name of its own, the source
# that joins them, and, where `launches`, the functions aclrtlaunch_<kernel> with their headers. `out`: these sources.
function(_reprise_generate caller name launches out)
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/ascendc/${name}")
  set(sources)
  set(tables)
  set(declarations)
  set(number 0)
  foreach(host IN LISTS ARGN)
    set(table "repriseKernelTable_${name}_${number}")
    string(MAKE_C_IDENTIFIER "${table}" table)
    get_filename_component(stem "${host}" NAME)
    list(APPEND sources "${folder}/${number}_${stem}.cpp")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${host}")
    string(APPEND declarations "extern \"C\" const RepriseKernelTable* ${table}(void);\n")
    list(APPEND tables "${table}()")
    file(READ "${host}" text)
    string(REPLACE ";" " " text "${text}")
    string(REPLACE "[" "{" text "${text}")  # brackets and semicolons mean something in lists
    string(REPLACE "]" "}" text "${text}")
    string(REGEX REPLACE "/\\*([^*]|\\*+[^*/])*\\*+/" " " text "${text}")
    string(REGEX REPLACE "//[^\n]*" " " text "${text}")
    if(NOT text MATCHES "REPRISE_KERNEL_TABLE[ \t\r\n]*\\(")
      message(FATAL_ERROR "${caller}(${name}): ${host} has no REPRISE_KERNEL_TABLE(kernel, …), see <reprise/kernel.h>")
    endif()
    string(REGEX MATCHALL "REPRISE_(MIX_)?KERNEL[ \t\r\n]*\\([ \t\r\n]*[A-Za-z_][A-Za-z_0-9]*[ \t\r\n]*," heads "${text}")
    string(REGEX MATCHALL
      "REPRISE_(MIX_)?KERNEL[ \t\r\n]*\\([ \t\r\n]*[A-Za-z_][A-Za-z_0-9]*[ \t\r\n]*,[^()]*\\([^()]*\\)" kernels "${text}")
    list(LENGTH heads head_count)
    list(LENGTH kernels kernel_count)
    if(NOT head_count EQUAL kernel_count)
      message(FATAL_ERROR "${caller}(${name}): the parameters of a kernel in ${host} cannot be read; give types with "
                          "parentheses in them a name of their own (using …)")
    endif()
    foreach(kernel IN LISTS kernels)
      string(REGEX MATCH "\\([ \t\r\n]*([A-Za-z_][A-Za-z_0-9]*)[ \t\r\n]*,[^()]*\\(([^()]*)\\)" whole "${kernel}")
      set(function "${CMAKE_MATCH_1}")
      _reprise_parameters("${CMAKE_MATCH_2}" "${caller}(${name}): kernel ${function} of ${host}" parameters)
      set(declared)
      set(passed)
      foreach(parameter IN LISTS parameters)
        string(REPLACE "|" ";" parts "${parameter}")
        list(GET parts 0 type)
        list(GET parts 1 parameter_name)
        string(APPEND declared ", ${type} ${parameter_name}")
        string(APPEND passed ", ${parameter_name}")
      endforeach()
      set(prototype "uint32_t aclrtlaunch_${function}(uint32_t numBlocks, aclrtStream stream${declared})")
      if(launches)
        file(CONFIGURE OUTPUT "${folder}/include/aclrtlaunch_${function}.h" @ONLY CONTENT
"// Written by ascendc_library(@name@).
#pragma once
#include <stdint.h>

#include \"acl/acl.h\"

#ifndef ACLRT_LAUNCH_KERNEL
#define ACLRT_LAUNCH_KERNEL(kernel) aclrtlaunch_##kernel
#endif

// Queues numBlocks blocks of the kernel; 0 or a number of acl_rt.h.
#ifdef __cplusplus
extern \"C\"
#endif
@prototype@;
")
      endif()
      # The types are those of the kernel's own source, so the function stands behind it.
      string(APPEND functions_${number}
"extern \"C\" __attribute__((visibility(\"default\"))) ${prototype} {
  static reprise_launch::Kernel kernel(\"${function}\", ${table}());
  return kernel.Launch(numBlocks, stream${passed});
}
")
    endforeach()
    set(wrapper_functions)
    if(launches)
      set(wrapper_functions "#include \"${reprise_ascendc_dir}/launch.h\"\n\n${functions_${number}}")
    endif()
    file(CONFIGURE OUTPUT "${folder}/${number}_${stem}.cpp" @ONLY CONTENT
"#define repriseKernelTable @table@
#include \"@host@\"
#undef repriseKernelTable
@wrapper_functions@")
    math(EXPR number "${number} + 1")
  endforeach()
  if(NOT launches)
    list(JOIN tables ", " tables)
    file(CONFIGURE OUTPUT "${folder}/table.cpp" @ONLY CONTENT
"#include \"@reprise_ascendc_dir@/launch.h\"

@declarations@
extern \"C\" __attribute__((visibility(\"default\"))) const RepriseKernelTable* repriseKernelTable(void) {
  static const reprise_launch::JoinedTable<@number@> joined({@tables@});
  return &joined.table;
}
")
    list(APPEND sources "${folder}/table.cpp")
  endif()
  set(${out} "${sources}" PARENT_SCOPE)
endfunction()

function(_reprise_kernel_target name)
  target_compile_features(${name} PRIVATE cxx_std_17)
  target_compile_definitions(${name} PRIVATE REPRISE_HOST_KERNELS=1)
  target_include_directories(${name} PUBLIC "${reprise_ascendc_prefix}/include")
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endfunction()

function(ascendc_library name)
  set(kind SHARED)
  set(sources ${ARGN})
  if("${ARGN}" MATCHES "^(SHARED|STATIC|OBJECT)(;|$)")
    list(POP_FRONT sources kind)
  endif()
  _reprise_host_versions(ascendc_library ${name} hosts ${sources})
  _reprise_generate(ascendc_library ${name} TRUE generated ${hosts})
  add_library(${name} ${kind} ${generated})
  _reprise_kernel_target(${name})
  target_include_directories(${name} PUBLIC "${CMAKE_CURRENT_BINARY_DIR}/ascendc/${name}/include")
  target_link_libraries(${name} PUBLIC "${reprise_ascendc_prefix}/lib64/libascendcl.so"
                                       "${reprise_ascendc_prefix}/lib64/libreprise.so")
  if(NOT kind STREQUAL "OBJECT")
    install(TARGETS ${name} LIBRARY DESTINATION lib ARCHIVE DESTINATION lib)
    install(DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/ascendc/${name}/include/" DESTINATION include/${name})
  endif()
endfunction()

function(ascendc_fatbin_library name)
  _reprise_host_versions(ascendc_fatbin_library ${name} hosts ${ARGN})
  _reprise_generate(ascendc_fatbin_library ${name} FALSE generated ${hosts})
  add_library(${name} MODULE ${generated})
  _reprise_kernel_target(${name})
  # Hidden, so that the loader can unload it.
  set_target_properties(${name} PROPERTIES PREFIX "" SUFFIX ".so" CXX_VISIBILITY_PRESET hidden
                                           VISIBILITY_INLINES_HIDDEN ON
                                           LIBRARY_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}")
  # Programs name the .o; it is the same file, for those that read it themselves.
  add_custom_command(TARGET ${name} POST_BUILD COMMAND ${CMAKE_COMMAND} -E copy "$<TARGET_FILE:${name}>"
                     "${CMAKE_CURRENT_BINARY_DIR}/${name}.o" VERBATIM)
  install(FILES "$<TARGET_FILE:${name}>" "${CMAKE_CURRENT_BINARY_DIR}/${name}.o" DESTINATION fatbin/${name})
endfunction()

# Macros without a command, as the vendor's functions take them; -D in front may be there or not.
function(ascendc_compile_definitions name)
  set(definitions ${ARGN})
  list(REMOVE_ITEM definitions PRIVATE PUBLIC INTERFACE)
  target_compile_definitions(${name} PRIVATE ${definitions})
endfunction()

function(ascendc_compile_options name)
  set(options ${ARGN})
  list(REMOVE_ITEM options PRIVATE PUBLIC INTERFACE -forward-options-to-host-compiler)
  # Options of the vendor's compiler mean nothing to the host's.
  list(FILTER options EXCLUDE REGEX "^(--?cce|-mllvm|-cce-|--npu-arch|-xcce)")
  target_compile_options(${name} PRIVATE ${options})
endfunction()

function(ascendc_include_directories name)
  set(directories ${ARGN})
  list(REMOVE_ITEM directories PRIVATE PUBLIC INTERFACE)
  target_include_directories(${name} PRIVATE ${directories})
endfunction()
