# SPDX-License-Identifier: MIT
# hakmem_tests.cmake: every test is found by its folder and becomes <preset>/<kind>/<name> in ctest.
#
# What a test needs beyond the defaults it says itself, in a comment line that starts with "ctest:", in words:
#   timeout=SECONDS   instead of the kind's (see hakmem_register)
#   lock=NAME         none of that name beside it: each takes much of the machine's memory or threads
#   slow              left out of `./hakmem test --quick`
#   args=WORD         one argument for the program (may be repeated)
#   not-again         not in a form that compiles what release compiles in another way, such as clang
#   once              only in the form with the tests of the tree: it asks about a tool, or what one form answers for all
#   no-tsan, no-asan  not under that sanitizer
#   no-qemu           not under qemu-user, which runs other processors' forms: it needs what qemu-user does not emulate
#   no-secure         not in the secure form: it asks how much memory can be had or stays, or frees what `new` made
#   own-shm           with a /dev/shm of its own, where that is permitted (tests/own_shm.sh)
#   preload-only      an override test without a statically linked form
#   static-only       an override test without an LD_PRELOAD form
#   secure-too        an override test whose LD_PRELOAD form runs with libhakmem-secure.so as well
#   archive           a plugin that is linked with libhakmem.a
#   exports           an override test whose preloaded form is linked with -rdynamic, too

get_filename_component(HAKMEM_FORM "${PROJECT_BINARY_DIR}" NAME)
set(slow_kinds model fault programs packaging protocol soak attach)
# Such a form compiles what release compiles in another way, such as clang. Its tests ask about the compiler's code;
# that an answer is rare or comes late is asked in release, and with all checks in debug.
set(repeats_release OFF)
if(HAKMEM_LEVEL EQUAL 0 AND NOT HAKMEM_CHECKS)
    set(repeats_release ON)
endif()
# ctest starts costly tests first, so that none is left alone at the end.
set(costly_kinds fault programs attach check model soak lab)
set(tests_directory "${PROJECT_SOURCE_DIR}/tests")
set(environment "TEST_ROOT=${PROJECT_SOURCE_DIR}" "TEST_BUILD=${PROJECT_BINARY_DIR}" "TEST_FORM=${HAKMEM_FORM}")

function(hakmem_read_words source result)
    file(STRINGS "${source}" line REGEX "^[ \t]*(/\\*|\\*|//|#) ctest: " LIMIT_COUNT 1 ENCODING UTF-8)
    string(REGEX REPLACE "^.*ctest: " "" line "${line}")
    string(REGEX REPLACE "[ \t]*\\*/[ \t]*$" "" line "${line}")
    string(REGEX REPLACE "[ \t]+" ";" words "${line}")
    set(${result} "${words}" PARENT_SCOPE)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${source}")
endfunction()

# The name of test_<name>.c and <name>.sh.
function(hakmem_test_name source result)
    get_filename_component(name ${source} NAME_WE)
    string(REGEX REPLACE "^test_" "" name ${name})
    set(${result} ${name} PARENT_SCOPE)
endfunction()

# True for a test that this form leaves out by its words.
function(hakmem_leaves_out words result)
    set(${result} OFF PARENT_SCOPE)
    if(("no-tsan" IN_LIST words AND HAKMEM_SANITIZE MATCHES "thread")
       OR ("no-asan" IN_LIST words AND HAKMEM_SANITIZE MATCHES "address")
       OR ("no-qemu" IN_LIST words AND CMAKE_CROSSCOMPILING)
       OR ("no-secure" IN_LIST words AND HAKMEM_SECURE)
       OR ("not-again" IN_LIST words AND repeats_release)
       OR ("once" IN_LIST words AND NOT HAKMEM_CHECKS))
        set(${result} ON PARENT_SCOPE)
    endif()
endfunction()

# hakmem_register(NAME KIND WORDS ENVIRONMENT COMMAND...): adds the test and what its words ask for.
function(hakmem_register name kind words variables)
    hakmem_leaves_out("${words}" left_out)
    if(left_out)
        return()
    endif()
    # For tests that hang: a machine that does much else may take ten times as long as a quiet one.
    set(timeout 300)
    if(kind MATCHES "^(model|threads|fault|programs|packaging|protocol|soak|check|attach|launcher|lab|trace|docs)$")
        set(timeout 900)
    endif()
    set(arguments)
    set(lock)
    foreach(word IN LISTS words)
        if(word MATCHES "^timeout=([0-9]+)$")
            set(timeout ${CMAKE_MATCH_1})
        elseif(word MATCHES "^args=(.+)$")
            list(APPEND arguments "${CMAKE_MATCH_1}")
        elseif(word MATCHES "^lock=(.+)$")
            set(lock ${CMAKE_MATCH_1})
        endif()
    endforeach()
    set(labels ${kind} ${HAKMEM_FORM})
    if(NOT kind IN_LIST slow_kinds AND NOT "slow" IN_LIST words)
        list(APPEND labels quick)
    endif()
    set(test ${HAKMEM_FORM}/${kind}/${name})
    list(APPEND environment ${variables})
    set(wrapper)
    if("own-shm" IN_LIST words)
        set(wrapper "${tests_directory}/own_shm.sh")
    endif()
    add_test(NAME ${test} COMMAND ${wrapper} ${ARGN} ${arguments} WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
    set_tests_properties(${test} PROPERTIES
        LABELS "${labels}" TIMEOUT ${timeout} SKIP_RETURN_CODE 77 ENVIRONMENT "${environment}")
    if(kind IN_LIST costly_kinds)
        set_tests_properties(${test} PROPERTIES COST 10)
    endif()
    if(lock)
        set_tests_properties(${test} PROPERTIES RESOURCE_LOCK ${lock})
    endif()
endfunction()

# Callbacks of tests ignore what they are given. A library, so that it stands behind -Wextra, where clang heeds it.
add_library(hakmem_callbacks INTERFACE)
target_compile_options(hakmem_callbacks INTERFACE -Wno-unused-parameter)

# hakmem_set_up_test(TARGET LIBRARY...): how all tests are compiled and linked.
function(hakmem_set_up_test target)
    target_include_directories(${target} PRIVATE "${tests_directory}" "${PROJECT_SOURCE_DIR}/include")
    target_compile_definitions(${target} PRIVATE
        HAK_LEVEL=${HAKMEM_LEVEL} $<$<BOOL:${HAKMEM_SECURE}>:HAK_SECURE=1> $<$<BOOL:${CMAKE_CROSSCOMPILING}>:SUPPORT_EMULATED=1>)
    # clang calls sized delete only on demand; programs by gcc do so always.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fsized-deallocation>)
    target_link_libraries(${target} PRIVATE
        hakmem_warnings hakmem_callbacks hakmem_no_builtin hakmem_sanitizer ${ARGN} Threads::Threads m ${CMAKE_DL_LIBS})
endfunction()

function(hakmem_add_test_program target kind source)
    string(REGEX REPLACE "^${kind}_" "test_" file_name ${target})
    add_executable(${target} ${source})
    set_target_properties(${target} PROPERTIES
        OUTPUT_NAME ${file_name} RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/${kind}")
    hakmem_set_up_test(${target} ${ARGN})
    if(source MATCHES "\\.c$")
        set_target_properties(${target} PROPERTIES LINKER_LANGUAGE C)
    endif()
endfunction()

# The model for fuzzers, and nothing else.
if(HAKMEM_SANITIZE STREQUAL "fuzzer")
    add_executable(fuzz_model "${tests_directory}/model/fuzz_model.c")
    set_target_properties(fuzz_model PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/model")
    target_include_directories(fuzz_model PRIVATE "${PROJECT_SOURCE_DIR}/include")
    target_compile_definitions(fuzz_model PRIVATE HAK_LEVEL=${HAKMEM_LEVEL})
    target_link_libraries(fuzz_model PRIVATE hakmem_warnings hakmem_no_builtin hakmem_api)
    target_link_options(fuzz_model PRIVATE -fsanitize=fuzzer)
    return()
endif()

find_path(CMOCKA_INCLUDE cmocka.h)
find_library(CMOCKA_LIBRARY cmocka)
mark_as_advanced(CMOCKA_INCLUDE CMOCKA_LIBRARY)
if(NOT CMOCKA_INCLUDE OR NOT CMOCKA_LIBRARY)
    message(FATAL_ERROR "The tests need cmocka (Debian: libcmocka-dev); -DHAKMEM_TESTS=OFF builds without them.")
endif()
add_library(hakmem_cmocka INTERFACE)
target_include_directories(hakmem_cmocka SYSTEM INTERFACE "${CMOCKA_INCLUDE}")
target_link_libraries(hakmem_cmocka INTERFACE "${CMOCKA_LIBRARY}")

# The hak_ API and the modules.
set(api_kinds unit api model threads oom death soak fault)
if(repeats_release) # what the kernel refuses, and what time shows, is no matter of the compiler; modules have api's code
    list(REMOVE_ITEM api_kinds unit oom soak fault)
endif()
# By these the library enters the kernel, but for getauxval, which tells where the vDSO is; the programs of
# fault/ put their own functions before them. tools/check_library.sh has all names that the library refers to.
set(kernel_calls mmap munmap mremap madvise mincore open close syscall getauxval)
list(TRANSFORM kernel_calls PREPEND "-Wl,--wrap=" OUTPUT_VARIABLE wrap_options)
if(HAKMEM_SANITIZE)
    set(api_kinds api model threads)
    # ThreadSanitizer of gcc 12 cannot live with the address randomisation of recent kernels.
    find_program(SETARCH setarch)
    if(SETARCH AND HAKMEM_SANITIZE MATCHES "thread")
        execute_process(COMMAND ${SETARCH} -R true RESULT_VARIABLE refused OUTPUT_QUIET ERROR_QUIET)
        if(refused EQUAL 0)
            set(launcher ${SETARCH} -R)
        endif()
    endif()
    # ThreadSanitizer looks for races at the end of each process, by default for a second.
    list(APPEND environment "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:atexit_sleep_ms=50" "ASAN_OPTIONS=detect_leaks=0"
         "UBSAN_OPTIONS=print_stacktrace=1")
endif()
if(CMAKE_CROSSCOMPILING)
    set(launcher ${CMAKE_CROSSCOMPILING_EMULATOR})
    list(JOIN launcher " " words)
    list(APPEND environment "TEST_EMULATOR=${words}")
endif()
if(HAKMEM_SECURE) # unit tests ask about the ordinary form's sizes and lists; tests/secure about this form
    set(api_kinds model threads oom)
endif()
foreach(kind IN LISTS api_kinds)
    file(GLOB sources CONFIGURE_DEPENDS "${tests_directory}/${kind}/test_*.c")
    foreach(source IN LISTS sources)
        hakmem_test_name(${source} name)
        hakmem_read_words(${source} words)
        hakmem_leaves_out("${words}" left_out)
        if(kind STREQUAL "api" AND HAKMEM_SANITIZE MATCHES "thread") # one thread alone has no race
            file(STRINGS "${source}" starts_threads REGEX "threads?_(start|run)\\(|pthread_create\\(" LIMIT_COUNT 1)
            if(NOT starts_threads)
                set(left_out ON)
            endif()
        endif()
        if(left_out)
            continue()
        endif()
        hakmem_add_test_program(${kind}_${name} ${kind} ${source} hakmem_api hakmem_cmocka)
        if(kind STREQUAL "fault")
            target_link_options(${kind}_${name} PRIVATE ${wrap_options})
        endif()
        if(kind STREQUAL "unit") # what is asked is the library, not the code that asks
            target_compile_options(${kind}_${name} PRIVATE -Og)
        endif()
        if(kind MATCHES "^(unit|fault)$")
            target_include_directories(${kind}_${name} PRIVATE "${PROJECT_SOURCE_DIR}/src")
        endif()
        hakmem_register(${name} ${kind} "${words}" "" ${launcher} $<TARGET_FILE:${kind}_${name}>)
    endforeach()
endforeach()
if(HAKMEM_SANITIZE)
    return()
endif()

# The drop-in: each program under LD_PRELOAD and linked with the static library. plugin_<name>.c are shared
# objects that these programs load.
set(preload "LD_PRELOAD=$<TARGET_FILE:hakmem_shared>")
set(preload_launcher)
if(CMAKE_CROSSCOMPILING) # for the program alone
    set(preload_launcher ${launcher} -E ${preload})
    set(preload "")
endif()
# What another compiler may answer otherwise: names, the order in which the loader and constructors come, thread-local
# variables, stacks.
set(asked_again names cxx cxx_heaps own_new own_malloc before_main tls_destructors ifunc dlopen deepbind
    signal crash_handler small_stack)
file(GLOB sources CONFIGURE_DEPENDS "${tests_directory}/override/test_*.c" "${tests_directory}/override/test_*.cc")
foreach(source IN LISTS sources)
    hakmem_test_name(${source} name)
    hakmem_read_words(${source} words)
    hakmem_leaves_out("${words}" left_out)
    if(left_out OR (repeats_release AND NOT name IN_LIST asked_again))
        continue()
    endif()
    # One object file for both programs, compiled as a program's: -fPIC is for libraries.
    add_library(override_${name}_object OBJECT ${source})
    set_target_properties(override_${name}_object PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(override_${name}_object PRIVATE -fPIE)
    hakmem_set_up_test(override_${name}_object hakmem_cmocka)
    set(object $<TARGET_OBJECTS:override_${name}_object>)
    set(language C)
    if(source MATCHES "\\.cc$")
        set(language CXX)
    endif()
    if(NOT "static-only" IN_LIST words)
        hakmem_add_test_program(override_${name} override ${object} hakmem_cmocka)
        set_target_properties(override_${name} PROPERTIES LINKER_LANGUAGE ${language})
        if("exports" IN_LIST words)
            set_target_properties(override_${name} PROPERTIES ENABLE_EXPORTS ON)
        endif()
        hakmem_register(${name} override "${words}" "${preload}" ${preload_launcher} $<TARGET_FILE:override_${name}>)
        if("secure-too" IN_LIST words AND NOT CMAKE_CROSSCOMPILING)
            hakmem_register(${name}_secure override "${words}" "LD_PRELOAD=$<TARGET_FILE:hakmem_secure>"
                $<TARGET_FILE:override_${name}>)
        endif()
    endif()
    # Release links all with the archive. Other forms may answer otherwise where a program starts or ends; of a
    # compiler that repeats release, two show that its archive can be linked.
    if(NOT "preload-only" IN_LIST words AND
       (HAKMEM_CHECKS OR HAKMEM_SECURE OR "static-only" IN_LIST words OR name MATCHES "^(names|cxx)$"
        OR (NOT repeats_release AND name MATCHES "main|exit|destructor|early")))
        set(target override_${name}_static)
        hakmem_add_test_program(${target} override ${object} hakmem_cmocka
            -Wl,--whole-archive $<TARGET_FILE:hakmem_static> -Wl,--no-whole-archive)
        add_dependencies(${target} hakmem_static)
        set_target_properties(${target} PROPERTIES
            ENABLE_EXPORTS ON LINK_DEPENDS $<TARGET_FILE:hakmem_static> LINKER_LANGUAGE ${language})
        hakmem_register(${name}_static override "${words}" "" ${launcher} $<TARGET_FILE:${target}>)
    endif()
endforeach()
# The tests of sizes, alignments and errno by the names of the C library, which a program has that is linked with the archive.
if(HAKMEM_CHECKS)
    foreach(name aligned calloc malloc realloc)
        set(target override_${name}_libc)
        hakmem_add_test_program(${target} override "${tests_directory}/api/test_${name}.c" hakmem_cmocka
            -Wl,--whole-archive $<TARGET_FILE:hakmem_static> -Wl,--no-whole-archive)
        add_dependencies(${target} hakmem_static)
        set_target_properties(${target} PROPERTIES ENABLE_EXPORTS ON LINK_DEPENDS $<TARGET_FILE:hakmem_static>)
        foreach(function malloc free calloc realloc reallocarray posix_memalign aligned_alloc memalign valloc pvalloc)
            target_compile_definitions(${target} PRIVATE hak_${function}=${function})
        endforeach()
        hakmem_register(${name}_libc override "" "" $<TARGET_FILE:${target}>)
    endforeach()
endif()
file(GLOB sources CONFIGURE_DEPENDS "${tests_directory}/override/plugin_*.c" "${tests_directory}/override/plugin_*.cc")
foreach(source IN LISTS sources)
    get_filename_component(name ${source} NAME_WE)
    add_library(${name} MODULE ${source})
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fsized-deallocation>)
    set_target_properties(${name} PROPERTIES
        PREFIX "" BUILD_RPATH "\$ORIGIN" LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/override")
    target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/include")
    hakmem_read_words(${source} words)
    target_link_libraries(${name} PRIVATE hakmem_warnings hakmem_no_builtin
        $<$<IN_LIST:archive,${words}>:hakmem_static> Threads::Threads)
endforeach()

# Programs with one bug each (hakmem_bugs.cmake), and one that corrupts its heap, under the secure form.
if(NOT CMAKE_CROSSCOMPILING)
    foreach(name IN LISTS HAKMEM_BUGS)
        if(NOT name MATCHES "^tags_")
            hakmem_register(${name} secure "" "" $<TARGET_FILE:hakmem_bugs> $<TARGET_FILE:hakmem_secure> ${name})
        endif()
    endforeach()
    # Attacks that this form notices each time (tests/secure/attacks.c); ./hakmem bench --suite attacks has them all.
    foreach(name behind_usable_24_8 behind_usable_24_16 behind_usable_1000_8 behind_usable_1000_16 jump_freed_56
            jump_fresh_56 jump_freed_1000 jump_fresh_1000 late_write_24_0 late_write_24_8 late_write_24_16
            late_write_100_0 late_write_100_48 late_write_100_92 late_write_1000_496 late_write_1000_992
            late_write_5000_8 late_write_5000_2496 late_write_5000_4992 late_write_30000_15000 late_write_60000_59992
            free_stack free_global free_code free_literal free_library free_mapped free_other_heap
            delete_array_size delete_array_less delete_array_as_one behind_kept before_17 before_32
            canary_same_slab canary_other_slab canary_other_class)
        hakmem_register(${name} secure "" "LD_PRELOAD=$<TARGET_FILE:hakmem_secure>" $<TARGET_FILE:hakmem_attacks> ${name} 5
            report)
    endforeach()
    hakmem_register(fork_after secure "" "LD_PRELOAD=$<TARGET_FILE:hakmem_secure>" $<TARGET_FILE:hakmem_attacks> fork_after 1
        held)
    add_executable(secure_corruption "${tests_directory}/secure/corruption.c")
    set_target_properties(secure_corruption PROPERTIES
        OUTPUT_NAME corruption RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/secure")
    hakmem_set_up_test(secure_corruption)
    set(words args=300)
    if(HAKMEM_CHECKS)
        set(words args=2000)
    endif()
    hakmem_register(corruption secure "${words}" "LD_PRELOAD=$<TARGET_FILE:hakmem_secure>" $<TARGET_FILE:secure_corruption>)
    foreach(name overflow_sizes questions at_exit heaps chances rings slabs large_blocks huge_pages)
        add_executable(secure_${name} "${tests_directory}/secure/${name}.c")
        set_target_properties(secure_${name} PROPERTIES
            OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/secure")
        hakmem_set_up_test(secure_${name})
        set(words)
        if(repeats_release AND name STREQUAL "chances") # random numbers are no matter of the compiler
            continue()
        elseif(name STREQUAL "overflow_sizes" AND NOT HAKMEM_CHECKS)
            set(words args=29) # some sizes: release tries all
        endif()
        hakmem_register(${name} secure "${words}" "LD_PRELOAD=$<TARGET_FILE:hakmem_secure>" $<TARGET_FILE:secure_${name}>)
    endforeach()
    hakmem_register(places override "not-again" "LD_PRELOAD=$<TARGET_FILE:hakmem_shared>" $<TARGET_FILE:secure_slabs> places)
    foreach(name addresses aligned realloc thread_bytes) # the API tests, on this form
        hakmem_add_test_program(secure_${name} secure "${tests_directory}/api/test_${name}.c" hakmem_secure hakmem_cmocka)
        target_compile_definitions(secure_${name} PRIVATE HAK_SECURE=1)
        hakmem_register(${name} secure "" "" $<TARGET_FILE:secure_${name}>)
    endforeach()
    hakmem_register(overflow_sampled secure "args=23" "LD_PRELOAD=$<TARGET_FILE:hakmem_secure>;HAKMEM_SAMPLE_BYTES=1"
        $<TARGET_FILE:secure_overflow_sizes>)
    foreach(name filters deepbind deepbind_cxx tls_destructors)
        if(TARGET override_${name})
            hakmem_register(${name} secure "" "LD_PRELOAD=$<TARGET_FILE:hakmem_secure>" $<TARGET_FILE:override_${name}>)
        endif()
    endforeach()
    add_executable(secure_closed_pages "${tests_directory}/secure/closed_pages.c")
    set_target_properties(secure_closed_pages PROPERTIES ENABLE_EXPORTS ON
        OUTPUT_NAME closed_pages RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/secure")
    hakmem_set_up_test(secure_closed_pages)
    hakmem_register(closed_pages secure "" "LD_PRELOAD=$<TARGET_FILE:hakmem_secure>"
        $<TARGET_FILE:secure_closed_pages>)
    add_library(secure_plugin_new MODULE "${tests_directory}/secure/plugin_new.cc")
    set_target_properties(secure_plugin_new PROPERTIES
        PREFIX "" OUTPUT_NAME plugin_new LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/secure")
    target_link_libraries(secure_plugin_new PRIVATE stdc++)
    add_executable(secure_static_cxx "${tests_directory}/secure/static_cxx.cc")
    set_target_properties(secure_static_cxx PROPERTIES LINKER_LANGUAGE CXX
        OUTPUT_NAME static_cxx RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/secure")
    target_link_libraries(secure_static_cxx PRIVATE -static-libstdc++ -static-libgcc ${CMAKE_DL_LIBS})
    add_dependencies(secure_static_cxx secure_plugin_new)
    hakmem_register(static_cxx secure "" "LD_PRELOAD=$<TARGET_FILE:hakmem_secure>"
        $<TARGET_FILE:secure_static_cxx> $<TARGET_FILE:secure_plugin_new>)
    # Settings in read-only pages: preloaded, and linked where the static library has the secure form.
    add_executable(secure_sealed "${tests_directory}/secure/sealed.c")
    set_target_properties(secure_sealed PROPERTIES
        OUTPUT_NAME sealed RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/secure")
    hakmem_set_up_test(secure_sealed)
    hakmem_register(sealed secure "" "LD_PRELOAD=$<TARGET_FILE:hakmem_secure>;HAKMEM_BIN_BYTES=8k"
        $<TARGET_FILE:secure_sealed>)
    if(HAKMEM_SECURE)
        add_executable(secure_sealed_static "${tests_directory}/secure/sealed.c")
        set_target_properties(secure_sealed_static PROPERTIES ENABLE_EXPORTS ON
            OUTPUT_NAME sealed_static RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/secure")
        hakmem_set_up_test(secure_sealed_static
            -Wl,--whole-archive $<TARGET_FILE:hakmem_static> -Wl,--no-whole-archive)
        add_dependencies(secure_sealed_static hakmem_static)
        set_target_properties(secure_sealed_static PROPERTIES LINK_DEPENDS $<TARGET_FILE:hakmem_static>)
        hakmem_register(sealed_static secure "" "HAKMEM_BIN_BYTES=8k" $<TARGET_FILE:secure_sealed_static>)
    endif()
endif()

# Memory tags (src/base/tags.h), by bugs under the secure form and an emulator that plays a processor with them.
if(CMAKE_CROSSCOMPILING AND CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
    include(hakmem_bugs)
    hakmem_add_test_program(tags_has_tags secure "${tests_directory}/secure/has_tags.c")
    # The bug, and the report.
    set(tagged
        write_after_free "memory tag: use after free"
        overflow_16 "memory tag: use after free, or access beyond a block"
        double_free "double free"
        tags_read_after_free "memory tag: use after free"
        tags_read_behind_calloc "memory tag: use after free, or access beyond a block"
        tags_free_of_new_owner "its memory tag has changed")
    while(tagged)
        list(POP_FRONT tagged bug report)
        string(REGEX REPLACE "^tags_" "" name ${bug})
        hakmem_register(tags_${name} secure "" "" bash "${tests_directory}/secure/emulated.sh" "${report}"
            $<TARGET_FILE:tags_has_tags> ${bug} ${launcher} -cpu max -E GLIBC_TUNABLES=glibc.cpu.name=kunpeng920
            -E "LD_PRELOAD=$<TARGET_FILE:hakmem_secure>" $<TARGET_FILE:hakmem_bugs>)
    endwhile()
endif()

# Attaching to processes that do not expect it: one test for each case_ of the scripts. What the observer does there at
# level 2 is asked by override/observe and override/fork_observe.
find_program(PYTHON3 python3)
if(TARGET hakmem_attach AND PYTHON3 AND HAKMEM_CHECKS)
    add_executable(attach_target "${tests_directory}/attach/target.cc")
    set_target_properties(attach_target PROPERTIES
        OUTPUT_NAME target RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/attach")
    target_compile_options(attach_target PRIVATE -Wall -Wextra) # with more, gcc 12 complains of std::vector
    target_link_libraries(attach_target PRIVATE Threads::Threads ${CMAKE_DL_LIBS} stdc++)
    add_executable(attach_silent "${tests_directory}/attach/silent_program.c")
    add_library(attach_silent_library SHARED "${tests_directory}/attach/silent.c")
    set_target_properties(attach_silent attach_silent_library PROPERTIES OUTPUT_NAME silent
        RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/attach"
        LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/attach")
    foreach(script IN ITEMS test_attach.py test_attach_apart.py test_attach_silent.py)
        hakmem_read_words("${tests_directory}/attach/${script}" words)
        file(STRINGS "${tests_directory}/attach/${script}" cases REGEX "^def case_")
        foreach(case IN LISTS cases)
            string(REGEX REPLACE "^def case_([a-z_]+).*" "\\1" name "${case}")
            string(REGEX MATCH "# ctest: (.+)$" own "${case}") # a case may say words, too
            string(REPLACE " " ";" own "${CMAKE_MATCH_1}")
            hakmem_register(${name} attach "${words};${own}" "TEST_ROUNDS=20" ${PYTHON3} "${tests_directory}/attach/${script}"
                "${PROJECT_BINARY_DIR}" ${name})
        endforeach()
    endforeach()
endif()

# Traces: the format by itself, and scripts that record and replay program_calls. They ask about the recorder and the
# tool, which no form compiles otherwise but aarch64.
if(TARGET hakmem_trace AND (HAKMEM_CHECKS OR CMAKE_CROSSCOMPILING))
    hakmem_add_test_program(trace_format trace "${tests_directory}/trace/test_format.c" hakmem_cmocka
        hakmem_trace_flags)
    list(TRANSFORM TRACE_TESTED PREPEND "${PROJECT_SOURCE_DIR}/trace/")
    target_sources(trace_format PRIVATE ${TRACE_TESTED})
    target_include_directories(trace_format PRIVATE "${PROJECT_SOURCE_DIR}")
    hakmem_register(format trace "" "" ${launcher} $<TARGET_FILE:trace_format>)
    hakmem_add_test_program(trace_fuzz_events trace "${tests_directory}/trace/fuzz_events.c" hakmem_trace_flags)
    target_sources(trace_fuzz_events PRIVATE "${PROJECT_SOURCE_DIR}/trace/encode.c")
    target_include_directories(trace_fuzz_events PRIVATE "${PROJECT_SOURCE_DIR}")
    set_target_properties(trace_fuzz_events PROPERTIES OUTPUT_NAME fuzz_events)
    hakmem_register(fuzz_events trace "no-qemu" "" $<TARGET_FILE:trace_fuzz_events> $<TARGET_FILE:hakmem_trace> 1 40)
    hakmem_add_test_program(trace_calls trace "${tests_directory}/trace/program_calls.cc")
    set_target_properties(trace_calls PROPERTIES OUTPUT_NAME program_calls)
    target_link_libraries(trace_calls PRIVATE stdc++)
    foreach(name record replay)
        set(script "${tests_directory}/trace/${name}.sh")
        hakmem_read_words(${script} words)
        hakmem_register(${name} trace "${words};no-qemu" "" bash ${script})
    endforeach()
endif()

# Every benchmark proves itself in under a second.
foreach(name IN LISTS HAKMEM_BENCHES)
    hakmem_register(${name} bench "" "${preload}" $<TARGET_FILE:bench_${name}> --smoke)
    hakmem_register(${name}_static bench "" "" $<TARGET_FILE:bench_${name}_static> --smoke)
endforeach()

# The library file itself, and the instructions of its fast paths against tests/golden/.
find_program(BASH bash REQUIRED)
hakmem_register(library check "" "" ${BASH} "${PROJECT_SOURCE_DIR}/tools/check_library.sh"
    $<TARGET_FILE:hakmem_shared>)
hakmem_register(library_secure check "" "" ${BASH} "${PROJECT_SOURCE_DIR}/tools/check_library.sh"
    $<TARGET_FILE:hakmem_secure>)
hakmem_register(probes check "" "" ${BASH} "${PROJECT_SOURCE_DIR}/tools/check_probes.sh" "${CMAKE_STRIP}"
    $<TARGET_FILE:hakmem_shared> $<TARGET_FILE:override_names_static>)
if(HAKMEM_LEVEL EQUAL 0 AND HAKMEM_UNITY AND NOT HAKMEM_SECURE)
    string(REGEX MATCH "^[0-9]+" compiler_major "${CMAKE_C_COMPILER_VERSION}")
    string(TOLOWER "${CMAKE_C_COMPILER_ID}-${compiler_major}" compiler)
    string(REPLACE "gnu-" "gcc-" compiler ${compiler})
    add_executable(count_fast_path "${PROJECT_SOURCE_DIR}/tools/count_fast_path.c")
    target_link_libraries(count_fast_path PRIVATE hakmem_warnings hakmem_no_builtin ${CMAKE_DL_LIBS})
    hakmem_register(fast_path golden "" "" ${BASH} "${PROJECT_SOURCE_DIR}/tools/check_fast_path.sh"
        $<TARGET_FILE:count_fast_path> $<TARGET_FILE:hakmem_shared> ${compiler}
        "${tests_directory}/golden/fast_path.txt")
    if(HAKMEM_BENCH AND NOT CMAKE_CROSSCOMPILING)
        hakmem_register(workloads golden "" "" ${PYTHON3} "${PROJECT_SOURCE_DIR}/tools/check_workloads.py"
            "${CMAKE_CURRENT_BINARY_DIR}/bench" $<TARGET_FILE:hakmem_shared> ${compiler}
            "${tests_directory}/golden/workloads.txt")
        # The library looks at the clock: beside other tests a run may take a tenth more instructions.
        set_tests_properties(${HAKMEM_FORM}/golden/workloads PROPERTIES RUN_SERIAL TRUE)
    endif()
endif()

# The tree itself: once, not in every form.
if(HAKMEM_CHECKS)
    foreach(kind model programs launcher packaging protocol probes docs)
        file(GLOB scripts CONFIGURE_DEPENDS "${tests_directory}/${kind}/*.sh")
        foreach(script IN LISTS scripts)
            hakmem_test_name(${script} name)
            if(NOT name MATCHES "^(lib|common|support|_)")
                hakmem_read_words(${script} words)
                hakmem_register(${name} ${kind} "${words}" "" ${BASH} ${script})
            endif()
        endforeach()
    endforeach()
    file(GLOB scripts CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/python/tests/lab/test_*.py")
    # Those that only compute are one test: Python takes two seconds to load what they need.
    set(figures)
    foreach(script IN LISTS scripts)
        hakmem_test_name(${script} name)
        hakmem_read_words(${script} words)
        file(STRINGS "${script}" starts_programs REGEX "BUILD|subprocess|Popen|fork|signal" LIMIT_COUNT 1)
        if(NOT starts_programs)
            list(APPEND figures "${script}")
            continue()
        endif()
        hakmem_register(${name} lab "${words}" "" ${BASH} "${PROJECT_SOURCE_DIR}/tools/check_lab.sh" ${script})
    endforeach()
    hakmem_register(figures lab "" "" ${BASH} "${PROJECT_SOURCE_DIR}/tools/check_lab.sh" ${figures})
    find_package(Python3 REQUIRED COMPONENTS Interpreter)
    foreach(name layers docs figures license)
        hakmem_register(${name} check "" "" ${Python3_EXECUTABLE} "${PROJECT_SOURCE_DIR}/tools/check_${name}.py")
    endforeach()
    # The commands that stand in the documents.
    hakmem_register(commands docs "slow" "" ${Python3_EXECUTABLE} "${tests_directory}/docs/commands.py")
    foreach(name lists man)
        hakmem_register(${name} check "" "" ${Python3_EXECUTABLE} "${PROJECT_SOURCE_DIR}/tools/write_${name}.py" --check)
    endforeach()
    hakmem_register(pins check "" "" ${BASH} "${PROJECT_SOURCE_DIR}/tools/pin_packages.sh" --check)
    hakmem_register(abi check "" "" ${BASH} "${PROJECT_SOURCE_DIR}/tools/check_abi.sh" $<TARGET_FILE:hakmem_shared>)
    foreach(name format tidy tools)
        hakmem_register(${name} check "" "" ${BASH} "${PROJECT_SOURCE_DIR}/tools/check_${name}.sh")
    endforeach()
endif()
