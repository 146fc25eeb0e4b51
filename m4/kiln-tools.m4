# SPDX-License-Identifier: Apache-2.0
# Programs that check targets run. A missing one is no error until its target is made.

AC_DEFUN([KILN_TOOLS], [
  AC_CHECK_PROGS([CLANG_FORMAT], [clang-format-14 clang-format], [clang-format])
  AC_CHECK_PROGS([CLANG], [clang clang-14], [clang])
  AC_CHECK_PROGS([CLANG_TIDY], [clang-tidy-14 clang-tidy], [clang-tidy])
  AC_CHECK_PROGS([CPPCHECK], [cppcheck], [cppcheck])
  AC_CHECK_PROGS([DOXYGEN], [doxygen])
  AM_CONDITIONAL([CAN_DOCUMENT], [test -n "$DOXYGEN"])
  AC_CHECK_PROGS([OCLGRIND], [oclgrind], [oclgrind])
  AC_CHECK_PROGS([VALGRIND], [valgrind], [valgrind])
  AC_CHECK_PROGS([SHELLCHECK], [shellcheck], [shellcheck])
  AC_CHECK_PROGS([NM], [nm], [nm])
])

# Where shells look for completions.
AC_DEFUN([KILN_COMPLETIONS], [
  AC_ARG_WITH([bash-completion-dir],
    [AS_HELP_STRING([--with-bash-completion-dir=DIR],
      [completion for bash goes there (DATADIR/bash-completion/completions)])],
    [], [with_bash_completion_dir=])
  AC_ARG_WITH([zsh-completion-dir],
    [AS_HELP_STRING([--with-zsh-completion-dir=DIR],
      [completion for zsh goes there (DATADIR/zsh/site-functions)])],
    [], [with_zsh_completion_dir=])
  AC_SUBST([BASH_COMPLETION_DIR],
    ["${with_bash_completion_dir:-\${datadir\}/bash-completion/completions}"])
  AC_SUBST([ZSH_COMPLETION_DIR], ["${with_zsh_completion_dir:-\${datadir\}/zsh/site-functions}"])
])
