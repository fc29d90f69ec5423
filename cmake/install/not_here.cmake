# Stands for packages of the vendor's compiler: find_package says why they are not there.
set(${CMAKE_FIND_PACKAGE_NAME}_FOUND FALSE)
set(${CMAKE_FIND_PACKAGE_NAME}_NOT_FOUND_MESSAGE
  "${CMAKE_FIND_PACKAGE_NAME} compiles kernels written in Ascend C, which nothing here understands. Write host versions of "
  "the kernels against <reprise/kernel.h>, and build them with ascendc_library (include ascendc.cmake from "
  "compiler/tikcpp/ascendc_kernel_cmake; RUN_MODE npu in projects that have one) or with reprise_add_kernels.")
list(JOIN ${CMAKE_FIND_PACKAGE_NAME}_NOT_FOUND_MESSAGE "" ${CMAKE_FIND_PACKAGE_NAME}_NOT_FOUND_MESSAGE)
