# SPDX-License-Identifier: Apache-2.0
# How kiln's own code is compiled: warnings, and the kinds of build that look for mistakes.

# KILN_TRY_FLAGS(VARIABLE, FLAGS): add those that the compiler takes.
AC_DEFUN([KILN_TRY_FLAGS], [
  for kiln_flag in $2; do
    AX_CHECK_COMPILE_FLAG([$kiln_flag], [AS_VAR_APPEND([$1], [" $kiln_flag"])], [], [-Werror])
  done])

AC_DEFUN([KILN_WARNINGS], [
  AC_ARG_ENABLE([werror],
    [AS_HELP_STRING([--enable-werror], [treat warnings as errors])], [], [enable_werror=no])
  KILN_TRY_FLAGS([KILN_CFLAGS], [-Wall -Wextra -Wshadow -Wmissing-prototypes -Wstrict-prototypes \
    -Werror=implicit-function-declaration -Wwrite-strings -Wpointer-arith -Wundef -Wvla -Wformat=2])
  AS_IF([test "$enable_werror" = yes], [AS_VAR_APPEND([KILN_CFLAGS], [" -Werror"])])
  AC_SUBST([KILN_CFLAGS])
  AX_CHECK_COMPILE_FLAG([-fvisibility=hidden], [KILN_HIDDEN=-fvisibility=hidden])
  AC_SUBST([KILN_HIDDEN])
])

# KILN_KIND(NAME, ENABLED, CFLAGS unless the user has some, FLAGS in any case)
AC_DEFUN([KILN_KIND], [
  AS_IF([test "$2" != no], [
    AS_VAR_APPEND([kiln_kinds], ["$1 "])
    kiln_default_cflags="$3"
    KILN_KIND_CFLAGS="$KILN_KIND_CFLAGS $4"])])

AC_DEFUN([KILN_BUILD_KINDS], [
  kiln_kinds=
  kiln_default_cflags="-O2 -g"
  AC_ARG_ENABLE([debug],
    [AS_HELP_STRING([--enable-debug], [check the result of every stage; no optimisation])],
    [], [enable_debug=no])
  KILN_KIND([debug], [$enable_debug], [-O0 -g], [])
  AS_IF([test "$enable_debug" != no], [KILN_DEFINES="$KILN_DEFINES -DKILN_DEBUG=1"])

  AC_ARG_ENABLE([sanitizers],
    [AS_HELP_STRING([--enable-sanitizers=LIST], [address,undefined (if LIST is left out) or
      thread])],
    [], [enable_sanitizers=no])
  AS_IF([test "$enable_sanitizers" = yes], [enable_sanitizers=address,undefined])
  kiln_flags="-fsanitize=$enable_sanitizers -fno-sanitize-recover=all -fno-omit-frame-pointer"
  KILN_KIND([sanitizers], [$enable_sanitizers], [-O1 -g], [$kiln_flags])
  AS_IF([test "$enable_sanitizers" != no],
    [AX_CHECK_LINK_FLAG([$kiln_flags], [],
      [AC_MSG_ERROR([$CC cannot link with -fsanitize=$enable_sanitizers])])])

  AC_ARG_ENABLE([coverage],
    [AS_HELP_STRING([--enable-coverage], [count the lines that tests reach, for gcov])],
    [], [enable_coverage=no])
  KILN_KIND([coverage], [$enable_coverage], [-O0 -g], [--coverage])

  AC_ARG_ENABLE([fuzzing],
    [AS_HELP_STRING([--enable-fuzzing], [build the libFuzzer targets of tests/fuzz; needs
      CC=clang])],
    [], [enable_fuzzing=no])
  KILN_KIND([fuzzing], [$enable_fuzzing], [-O1 -g],
    [-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all])
  AS_IF([test "$enable_fuzzing" != no],
    [AX_CHECK_COMPILE_FLAG([-fsanitize=fuzzer-no-link], [],
      [AC_MSG_ERROR([fuzzing needs clang: configure with CC=clang])], [-Werror])])
  AM_CONDITIONAL([FUZZING], [test "$enable_fuzzing" != no])

  # A library does not abort: what it asserts is for those who work on it.
  AS_IF([test "$enable_debug$enable_sanitizers$enable_fuzzing" = nonono],
    [KILN_DEFINES="$KILN_DEFINES -DNDEBUG=1"])

  AS_IF([test -z "$kiln_user_cflags"], [CFLAGS=$kiln_default_cflags])
  AS_IF([test -z "$kiln_kinds"], [kiln_kinds=optimised])
  AC_SUBST([KILN_DEFINES])
  AC_SUBST([KILN_KIND_CFLAGS])
])

# The sandbox of Criterion cannot live with ThreadSanitizer and Oclgrind; a stand-in of a few lines
# serves there.
AC_DEFUN([KILN_TEST_RUNNER], [
  AC_ARG_ENABLE([plain-tests],
    [AS_HELP_STRING([--enable-plain-tests], [run the tests without Criterion, through
      tests/support/plain])],
    [], [enable_plain_tests=no])
  AS_CASE([$enable_sanitizers], [*thread*], [enable_plain_tests=yes])
  AM_CONDITIONAL([PLAIN_TESTS], [test "$enable_plain_tests" != no])
  AS_IF([test "$enable_plain_tests" != no],
    [TEST_CPPFLAGS='-I$(top_srcdir)/tests/support/plain'
     TEST_LIBS=
     kiln_make_check="yes, with the stand-in for Criterion"],
    [TEST_CPPFLAGS=$CRITERION_CFLAGS
     TEST_LIBS=$CRITERION_LIBS
     kiln_make_check=$kiln_have_criterion])
  dnl 170 programs have all of kiln in them: gold links them in half the time.
  AX_CHECK_LINK_FLAG([-fuse-ld=gold], [TEST_LINKER=-fuse-ld=gold], [TEST_LINKER=])
  AC_SUBST([TEST_LINKER])
  AC_SUBST([TEST_CPPFLAGS])
  AC_SUBST([TEST_LIBS])
  AC_ARG_VAR([TEST_CFLAGS], [what the C compiler is told behind CFLAGS for programs of tests alone:
    -O0, which takes a third of the time, where CFLAGS are not given])
  AS_IF([test -z "${TEST_CFLAGS+set}$kiln_user_cflags"], [TEST_CFLAGS=-O0])
  AC_ARG_ENABLE([long-tests],
    [AS_HELP_STRING([--enable-long-tests], [make check runs those of make check-long, too])],
    [], [enable_long_tests=no])
  AM_CONDITIONAL([LONG_TESTS], [test "$enable_long_tests" != no])
  AM_CONDITIONAL([CAN_CHECK],
    [test "$enable_plain_tests" != no || test "$kiln_have_criterion" = yes])
])

# Whether the linker takes a version script: else all of the library's names have no version.
AC_DEFUN([KILN_VERSION_SCRIPTS], [
  AC_CACHE_CHECK([whether the linker takes version scripts], [kiln_cv_version_scripts],
    [kiln_saved_ldflags=$LDFLAGS
     echo 'KILN_0 { global: kiln_x; local: *; };' >conftest.map
     LDFLAGS="$LDFLAGS -shared -fPIC -Wl,--version-script=conftest.map"
     AC_LINK_IFELSE([AC_LANG_SOURCE([int kiln_x(void); int kiln_x(void) { return 0; }])],
       [kiln_cv_version_scripts=yes], [kiln_cv_version_scripts=no])
     rm -f conftest.map
     LDFLAGS=$kiln_saved_ldflags])
  AM_CONDITIONAL([VERSION_SCRIPTS], [test "$kiln_cv_version_scripts" = yes])
])
