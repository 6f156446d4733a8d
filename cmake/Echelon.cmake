# How Echelon's targets are made: one OBJECT library per module and per instruction set, tests with
# a timeout and a label. Sources are listed, never globbed: a file that no list names fails
# scripts/check-lists.

set(ECH_WARNINGS -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wundef -Wvla
                 -Wwrite-strings -Wconversion -Wno-sign-conversion
                 # A field that an initializer leaves out is zero: that is what tables rely on.
                 -Wno-missing-field-initializers)

add_library(ech_flags INTERFACE)
target_include_directories(ech_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
target_compile_options(ech_flags INTERFACE ${ECH_WARNINGS} -fno-math-errno -ffp-contract=off)
target_compile_definitions(ech_flags INTERFACE _GNU_SOURCE)
if(ECH_WERROR)
  target_compile_options(ech_flags INTERFACE -Werror)
endif()
if(ECH_ASSERTS)
  target_compile_definitions(ech_flags INTERFACE ECH_DEBUG=1)
  target_compile_options(ech_flags INTERFACE -O1)
else()
  target_compile_options(ech_flags INTERFACE -O2 -g1)
endif()
if(ECH_SANITIZE)
  target_compile_options(ech_flags INTERFACE -fsanitize=${ECH_SANITIZE} -fno-omit-frame-pointer
                                             -fno-sanitize-recover=all)
  target_link_options(ech_flags INTERFACE -fsanitize=${ECH_SANITIZE})
  target_compile_definitions(ech_flags INTERFACE ECH_SANITIZE=1)
  # gcc sees uninitialised values that aren't, once its own checks are in the code.
  target_compile_options(ech_flags INTERFACE $<$<C_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endif()

# Coverage of the library itself is what guides a fuzzer; without it only the target's own few lines count.
if(ECH_FUZZ)
  target_compile_options(ech_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# ech_module(NAME SOURCES … [LIBS …]): the objects of src/NAME.
function(ech_module name)
  cmake_parse_arguments(M "" "" "SOURCES;LIBS" ${ARGN})
  add_library(ech_${name} OBJECT ${M_SOURCES})
  target_link_libraries(ech_${name} PRIVATE ech_flags ${M_LIBS})
  set_property(GLOBAL APPEND PROPERTY ECH_OBJECT_LIBS ech_${name})
  set_property(GLOBAL APPEND PROPERTY ECH_EXTERNAL_LIBS ${M_LIBS})
endfunction()

# ech_isa_module(NAME FLAGS … SOURCES …): kernels of one instruction set, with its own -m flags.
function(ech_isa_module name)
  cmake_parse_arguments(M "" "" "SOURCES;FLAGS" ${ARGN})
  add_library(ech_${name} OBJECT ${M_SOURCES})
  target_link_libraries(ech_${name} PRIVATE ech_flags)
  target_compile_options(ech_${name} PRIVATE ${M_FLAGS})
  set_property(GLOBAL APPEND PROPERTY ECH_OBJECT_LIBS ech_${name})
endfunction()

# ech_test(NAME SOURCES … [LABEL short|medium|long] [TIMEOUT s] [ARGS …]): a cmocka program that
# sees every internal symbol. One ctest entry.
function(ech_test name)
  cmake_parse_arguments(T "" "LABEL;TIMEOUT" "SOURCES;ARGS;LIBS" ${ARGN})
  if(NOT T_LABEL)
    set(T_LABEL short)
  endif()
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 60)
  endif()
  add_executable(${name} ${T_SOURCES})
  target_link_libraries(${name} PRIVATE ech_flags echelon_static PkgConfig::CMOCKA ${T_LIBS})
  target_compile_definitions(${name} PRIVATE ECH_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  # cmocka's assert_int_equal takes wide integers on purpose.
  target_compile_options(${name} PRIVATE -Wno-conversion)
  add_test(NAME ${name} COMMAND ${name} ${T_ARGS})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${T_TIMEOUT} LABELS ${T_LABEL} SKIP_RETURN_CODE 77)
endfunction()

# ech_script_test(NAME COMMAND … [LABEL …] [TIMEOUT …]): a script under ctest; exit 77 is a skip.
function(ech_script_test name)
  cmake_parse_arguments(T "" "LABEL;TIMEOUT" "COMMAND;ENVIRONMENT" ${ARGN})
  if(NOT T_LABEL)
    set(T_LABEL short)
  endif()
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 60)
  endif()
  add_test(NAME ${name} COMMAND ${T_COMMAND} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${T_TIMEOUT} LABELS ${T_LABEL} SKIP_RETURN_CODE 77
                       ENVIRONMENT "ECHELON=$<TARGET_FILE:echelon>;ECH_BUILD=${PROJECT_BINARY_DIR};XDG_CACHE_HOME=${PROJECT_BINARY_DIR}/tests/cache;${T_ENVIRONMENT}")
endfunction()
