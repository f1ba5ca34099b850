# SPDX-License-Identifier: MIT
# hakmem_lab.cmake: lab/measure, the small process that runs and measures one program; lab/load, which loads a server;
# lab/paths, which takes one path of the allocator at a time (./hakmem cost); lab/scale and lab/scale_model, which count
# the cache lines that many processors would exchange. hakmem_lab builds all that measuring needs.

add_custom_target(hakmem_lab)
add_dependencies(hakmem_lab hakmem_libraries hakmem_secure)
if(TARGET hakmem_tracing)
    add_dependencies(hakmem_lab hakmem_tracing)
endif()
if(TARGET hakmem_bugs)
    add_dependencies(hakmem_lab hakmem_bugs hakmem_attacks)
endif()
foreach(name IN LISTS HAKMEM_BENCHES)
    add_dependencies(hakmem_lab bench_${name})
endforeach()

# hakmem_add_lab_program(NAME SOURCES LIBRARY...): lab/NAME, unless this is a tree without its sources.
function(hakmem_add_lab_program name sources)
    if(sources)
        add_executable(lab_${name} ${sources})
        set_target_properties(lab_${name} PROPERTIES
            OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lab" LINKER_LANGUAGE C)
        target_link_libraries(lab_${name} PRIVATE hakmem_warnings ${ARGN})
        add_dependencies(hakmem_lab lab_${name})
    endif()
endfunction()

file(GLOB measure_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/lab/measure*.c")
hakmem_add_lab_program(measure "${measure_sources}")
file(GLOB load_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/lab/load*.c")
hakmem_add_lab_program(load "${load_sources}" m)
file(GLOB path_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/lab/paths/*.c")
hakmem_add_lab_program(paths "${path_sources}" hakmem_shared hakmem_no_builtin Threads::Threads)
if(TARGET lab_paths)
    target_compile_options(lab_paths PRIVATE -Wno-unused-parameter) # its steps all have the same parameters
endif()
file(GLOB scale_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/lab/scale/*.c")
hakmem_add_lab_program(scale "${scale_sources}" hakmem_no_builtin Threads::Threads ${CMAKE_DL_LIBS} -Wl,--export-dynamic)
file(GLOB scale_model_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/lab/scale/*.cc")
hakmem_add_lab_program(scale_model "${scale_model_sources}")
if(TARGET lab_scale_model)
    set_target_properties(lab_scale_model PROPERTIES LINKER_LANGUAGE CXX CXX_STANDARD 17)
endif()
