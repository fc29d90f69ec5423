# scripts/mutants.py only: cmake reads this at project(), in the tree where mutants are built. There the programs of
# REPRISE_MUTANT_PROGRAMS are linked with the layers and kernels below instead of libreprise.so, so that a mutant costs
# one source and one link, and the tree a third of the sources. What a program misses is an error when it is linked.
set(REPRISE_MUTANT_LAYERS base ir device exec memory)
set(REPRISE_MUTANT_KERNELS
  "^(cast|dtype|matmul|normalize|reduce|strided)\\.cc$|^simd/(fold|matmul_tile|normalize|rows)\\.cc$")

function(reprise_link_mutants)
  set(objects)
  foreach(layer IN LISTS REPRISE_MUTANT_LAYERS)
    list(APPEND objects $<TARGET_OBJECTS:reprise_${layer}>)
  endforeach()
  add_library(reprise_mutants STATIC ${objects})
  get_property(backtrace_library GLOBAL PROPERTY REPRISE_BACKTRACE_LIBRARY)
  target_link_libraries(reprise_mutants PUBLIC reprise_fmt ${backtrace_library} ${CMAKE_DL_LIBS})
  foreach(program IN LISTS REPRISE_MUTANT_PROGRAMS)
    get_target_property(libraries ${program} LINK_LIBRARIES)
    list(TRANSFORM libraries REPLACE "^reprise$" reprise_mutants)
    set_target_properties(${program} PROPERTIES LINK_LIBRARIES "${libraries}")
  endforeach()
  get_target_property(sources reprise_kernels SOURCES)
  list(FILTER sources INCLUDE REGEX "${REPRISE_MUTANT_KERNELS}")
  set_target_properties(reprise_kernels PROPERTIES SOURCES "${sources}")
endfunction()

cmake_language(DEFER CALL reprise_link_mutants)
