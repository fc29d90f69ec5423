# The installed tree has the layout that build scripts for this toolkit expect: include/, lib64/, set_env.sh at the top;
# and CMake package files for find_package(Reprise).
include(CMakePackageConfigHelpers)

set(REPRISE_LIB_DIR lib64)
set(libraries
  reprise
  acl_cblas
  acl_mdl
  acl_op_compiler
  acl_op_executor
  acl_tdt_channel
  acl_tdt_queue
  ascend_dump
  ascendcl
  msprofiler
  nnopbase
  opapi)
set(installed)
foreach(library IN LISTS libraries)
  if(TARGET ${library})
    list(APPEND installed ${library})
  endif()
endforeach()

install(TARGETS ${installed} EXPORT RepriseTargets LIBRARY DESTINATION ${REPRISE_LIB_DIR})
install(DIRECTORY include/ DESTINATION include)
install(PROGRAMS cmake/set_env.sh DESTINATION .)
install(FILES LICENSE DESTINATION share/doc/reprise)
install(FILES cmake/RepriseKernels.cmake DESTINATION ${REPRISE_LIB_DIR}/cmake/Reprise)

install(EXPORT RepriseTargets NAMESPACE Reprise:: DESTINATION ${REPRISE_LIB_DIR}/cmake/Reprise)
configure_package_config_file(cmake/RepriseConfig.cmake.in ${PROJECT_BINARY_DIR}/RepriseConfig.cmake
                              INSTALL_DESTINATION ${REPRISE_LIB_DIR}/cmake/Reprise)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/RepriseConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/RepriseConfig.cmake ${PROJECT_BINARY_DIR}/RepriseConfigVersion.cmake
        DESTINATION ${REPRISE_LIB_DIR}/cmake/Reprise)
