# The installed tree has the layout that build scripts for this toolkit expect: include/, lib64/, set_env.sh at the top,
# other names for them (cmake/install/tree.cmake), ascendc.cmake; and packages for find_package(Reprise) and pkg-config,
# where every CMake looks for them.
include(CMakePackageConfigHelpers)

set(REPRISE_LIB_DIR lib64)
set(REPRISE_PACKAGE_DIR lib/cmake/Reprise)
set(libraries
  reprise
  acl_cblas
  acl_mdl
  acl_op_compiler
  acl_op_executor
  acl_tdt_channel
  acl_tdt_queue
  aoe_tuning
  ascend_dump
  ascend_hal
  ascend_protobuf
  ascendcl
  atb
  c_sec
  fmk_parser
  exe_graph
  ge_compiler
  ge_runner
  graph
  graph_base
  hccl
  hcomm
  ms_tools_ext
  msprofiler
  nnopbase
  opapi
  opp_registry
  profapi
  reprise_compiler
  reprise_engine
  register
  rt)
set(installed)
foreach(library IN LISTS libraries)
  if(TARGET ${library})
    list(APPEND installed ${library})
  endif()
endforeach()

add_custom_target(reprise_libraries DEPENDS ${installed} reprise_ge_proto)

install(TARGETS ${installed} EXPORT RepriseTargets LIBRARY DESTINATION ${REPRISE_LIB_DIR})
install(TARGETS reprise_ge_proto LIBRARY DESTINATION ${REPRISE_LIB_DIR})  # opened on demand, never linked
if(TARGET reprise-planner)
  add_dependencies(reprise_libraries reprise-planner)  # all that is installed
  install(TARGETS reprise-planner RUNTIME DESTINATION bin)
endif()
install(DIRECTORY include/ DESTINATION include)
install(DIRECTORY tools/profiler DESTINATION tools USE_SOURCE_PERMISSIONS PATTERN __pycache__ EXCLUDE)
install(FILES LICENSE DESTINATION share/doc/reprise)
install(FILES cmake/install/ascendc.cmake cmake/install/launch.h
        DESTINATION ${CMAKE_SYSTEM_PROCESSOR}-linux/tikcpp/ascendc_kernel_cmake)
# Packages that projects with kernels may look for instead, with the reason why they are not there.
install(FILES cmake/install/not_here.cmake RENAME ASCConfig.cmake
        DESTINATION ${CMAKE_SYSTEM_PROCESSOR}-linux/tikcpp/ascendc_kernel_cmake)
foreach(folder lib/cmake tools/tikicpulib/lib/cmake)
  install(FILES cmake/install/not_here.cmake RENAME tikicpulib-config.cmake DESTINATION ${folder}/tikicpulib)
endforeach()

install(FILES cmake/RepriseKernels.cmake DESTINATION ${REPRISE_PACKAGE_DIR})
install(EXPORT RepriseTargets NAMESPACE Reprise:: DESTINATION ${REPRISE_PACKAGE_DIR})
configure_package_config_file(cmake/RepriseConfig.cmake.in ${PROJECT_BINARY_DIR}/RepriseConfig.cmake
                              INSTALL_DESTINATION ${REPRISE_PACKAGE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/RepriseConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/RepriseConfig.cmake ${PROJECT_BINARY_DIR}/RepriseConfigVersion.cmake
        DESTINATION ${REPRISE_PACKAGE_DIR})
configure_file(cmake/install/reprise.pc.in ${PROJECT_BINARY_DIR}/reprise.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/reprise.pc DESTINATION lib/pkgconfig)

# The version that the library answers with, too.
file(STRINGS src/base/env.def line REGEX "kCannVersion")
string(REGEX REPLACE ".*\"REPRISE_CANN_VERSION\", \"([^\"]+)\".*" "\\1" version "${line}")
install(CODE "
  set(installed \"\${CMAKE_INSTALL_PREFIX}\")
  set(processor ${CMAKE_SYSTEM_PROCESSOR})
  set(version ${version})
  set(sources \"${PROJECT_SOURCE_DIR}/cmake/install\")
  include(\"${PROJECT_SOURCE_DIR}/cmake/install/tree.cmake\")")
