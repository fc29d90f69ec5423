# Run at installation: the links and files that build scripts for this toolkit look for. From the top, lib64/ and include/
# hold everything; the other folders are names that scripts know for them.
#
#   prefix      where the files are put now; installed: where they will be found
#   processor   as uname -m says it
#   version     of the toolkit that the interface is that of
get_filename_component(installed "${installed}" ABSOLUTE)
set(prefix "$ENV{DESTDIR}${installed}")
set(arch ${processor}-linux)

function(reprise_link path target)
  get_filename_component(folder "${prefix}/${path}" DIRECTORY)
  file(MAKE_DIRECTORY "${folder}")
  if(IS_SYMLINK "${prefix}/${path}" OR NOT EXISTS "${prefix}/${path}")
    file(CREATE_LINK ${target} "${prefix}/${path}" SYMBOLIC)
  endif()
endfunction()

# The newer names of the library of the runtime.
foreach(name acl_rt acl_rt_impl)
  reprise_link(lib64/lib${name}.so libascendcl.so)
endforeach()

# Libraries to link against only, as installations without a driver have them.
file(GLOB libraries "${prefix}/lib64/lib*.so" "${prefix}/lib64/lib*.so.[0-9]")
foreach(library IN LISTS libraries)
  get_filename_component(name "${library}" NAME)
  reprise_link(lib64/stub/${name} ../${name})
endforeach()

foreach(folder ${arch} runtime compiler acllib fwkacllib)
  reprise_link(${folder}/include ../include)
  reprise_link(${folder}/lib64 ../lib64)
endforeach()
reprise_link(${arch}/devlib ../lib64)
foreach(folder compiler tools)
  reprise_link(${folder}/tikcpp ../${arch}/tikcpp)
endforeach()

foreach(folder . runtime compiler opp toolkit)
  file(WRITE "${prefix}/${folder}/version.info" "Version=${version}\nversion_dir=${version}\n")
endforeach()
file(WRITE "${prefix}/${arch}/ascend_toolkit_install.info"
     "package_name=Ascend-cann-toolkit\nversion=${version}\narch=${processor}\nos=linux\npath=${installed}\n")
foreach(folder opp/vendors opp/built-in/op_impl/ai_core/tbe python/site-packages)
  file(MAKE_DIRECTORY "${prefix}/${folder}")
endforeach()

# set_env.sh under the names that scripts source. Shells that do not tell a file where it stands take this place.
file(READ "${sources}/set_env.sh.in" text)
string(REPLACE "@REPRISE_INSTALLED@" "${installed}" text "${text}")
foreach(name set_env.sh bin/setenv.bash bin/setenv.sh)
  file(WRITE "${prefix}/${name}" "${text}")
  file(CHMOD "${prefix}/${name}" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ
                                             WORLD_EXECUTE)
endforeach()

# What `make uninstall` removes: a line for each file and link; what is below opp/vendors belongs to the user.
set(list share/doc/reprise/installed.txt)
set(ours ${list} bin/setenv.bash bin/setenv.sh set_env.sh ${arch}/ascend_toolkit_install.info)
foreach(folder . runtime compiler opp toolkit)
  list(APPEND ours ${folder}/version.info)
endforeach()
foreach(file IN LISTS CMAKE_INSTALL_MANIFEST_FILES)
  file(RELATIVE_PATH file "${installed}" "${file}")
  list(APPEND ours ${file})
endforeach()
foreach(path lib64 ${arch} runtime compiler tools acllib fwkacllib)
  file(GLOB links RELATIVE "${prefix}" "${prefix}/${path}/*" "${prefix}/${path}/stub/*")
  foreach(link IN LISTS links)
    if(IS_SYMLINK "${prefix}/${link}")
      list(APPEND ours ${link})
    endif()
  endforeach()
endforeach()
list(REMOVE_DUPLICATES ours)
list(SORT ours)
list(JOIN ours "\n" text)
file(WRITE "${prefix}/${list}" "${text}\n")
