# SPDX-License-Identifier: Apache-2.0
# The libraries that kiln, its tools, tests and benchmarks are linked with.

# KILN_NEEDS(NAME, pkg-config module, Debian package)
AC_DEFUN([KILN_NEEDS], [
  PKG_CHECK_MODULES([$1], [$2], [],
    [AC_MSG_ERROR([pkg-config does not find $2; on Debian and Ubuntu: apt-get install $3])])])

AC_DEFUN([KILN_LIBRARIES], [
  KILN_NEEDS([OPENCL], [OpenCL], [ocl-icd-opencl-dev opencl-headers])
  KILN_NEEDS([XXHASH], [libxxhash], [libxxhash-dev])
  KILN_NEEDS([JANSSON], [jansson >= 2.14], [libjansson-dev])
  KILN_NEEDS([ZLIB], [zlib], [zlib1g-dev])
  AC_SEARCH_LIBS([pthread_create], [pthread], [],
    [AC_MSG_ERROR([no POSIX threads on this machine])])
  AC_SEARCH_LIBS([exp], [m])

  KILN_CLBLAST
  KILN_MICROHTTPD
  KILN_UTF8PROC
  KILN_ONNX
  KILN_LM
  KILN_MPI

  dnl Only `make check` and `make bench` need these.
  PKG_CHECK_MODULES([CRITERION], [criterion >= 2.3],
    [kiln_have_criterion=yes], [kiln_have_criterion="no: install libcriterion-dev first"])
  PKG_CHECK_MODULES([OPENBLAS], [openblas],
    [OPENBLAS_CFLAGS="$OPENBLAS_CFLAGS -DHAVE_OPENBLAS=1"], [:])
  AC_OPENMP
])

# CLBlast's pkg-config file is not on every system: ask the compiler.
AC_DEFUN([KILN_CLBLAST], [
  AC_ARG_WITH([clblast],
    [AS_HELP_STRING([--without-clblast], [leave CLBlast out of the matmul candidates])],
    [], [with_clblast=check])
  AS_IF([test "$with_clblast" != no], [
    kiln_saved=$LIBS
    LIBS="-lclblast $OPENCL_LIBS $LIBS"
    AC_MSG_CHECKING([for CLBlast])
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#define CL_TARGET_OPENCL_VERSION 120
#include <clblast_c.h>]], [[return (int)CLBlastClearCache();]])],
      [kiln_clblast=yes], [kiln_clblast=no])
    AC_MSG_RESULT([$kiln_clblast])
    LIBS=$kiln_saved
    AS_IF([test "$kiln_clblast$with_clblast" = noyes],
      [AC_MSG_ERROR([no CLBlast; on Debian and Ubuntu: apt-get install libclblast-dev])])
    with_clblast=$kiln_clblast])
  AS_IF([test "$with_clblast" = yes], [
    KILN_DEFINES="$KILN_DEFINES -DHAVE_CLBLAST=1"
    CLBLAST_LIBS=-lclblast])
  AC_SUBST([CLBLAST_LIBS])
])

# What `kiln serve` and examples/serve_digits answer HTTP with.
AC_DEFUN([KILN_MICROHTTPD], [
  AC_ARG_WITH([microhttpd],
    [AS_HELP_STRING([--without-microhttpd], [leave `kiln serve' out, and metrics of examples/serve_digits])],
    [], [with_microhttpd=check])
  AS_IF([test "$with_microhttpd" != no], [
    PKG_CHECK_MODULES([MICROHTTPD], [libmicrohttpd >= 0.9.71], [
      MICROHTTPD_CFLAGS="$MICROHTTPD_CFLAGS -DHAVE_MICROHTTPD=1"
      with_microhttpd=yes], [
      AS_IF([test "$with_microhttpd" = yes],
        [AC_MSG_ERROR([no libmicrohttpd; on Debian and Ubuntu: apt-get install libmicrohttpd-dev])])
      with_microhttpd=no])])
  AM_CONDITIONAL([MICROHTTPD], [test "$with_microhttpd" = yes])
])

# What `kiln embed` and libkiln-lm know of Unicode.
AC_DEFUN([KILN_UTF8PROC], [
  AC_ARG_WITH([utf8proc],
    [AS_HELP_STRING([--without-utf8proc], [leave `kiln embed' and libkiln-lm out])],
    [], [with_utf8proc=check])
  AS_IF([test "$with_utf8proc" != no], [
    PKG_CHECK_MODULES([UTF8PROC], [libutf8proc >= 2.5], [
      UTF8PROC_CFLAGS="$UTF8PROC_CFLAGS -DHAVE_UTF8PROC=1"
      kiln_utf8proc=yes], [kiln_utf8proc=no])
    AS_IF([test "$kiln_utf8proc$with_utf8proc" = noyes],
      [AC_MSG_ERROR([no libutf8proc; on Debian and Ubuntu: apt-get install libutf8proc-dev])])
    with_utf8proc=$kiln_utf8proc])
  AM_CONDITIONAL([UTF8PROC], [test "$with_utf8proc" = yes])
])

# What libkiln-onnx reads files with: protobuf-c, and the schema that libonnx-dev has.
AC_DEFUN([KILN_ONNX], [
  AC_ARG_WITH([onnx],
    [AS_HELP_STRING([--with-onnx], [build libkiln-onnx, which runs ONNX files: yes, no, or auto where
      its packages are installed (the default)])],
    [], [with_onnx=auto])
  AC_ARG_VAR([ONNX_PROTO], [the schema of ONNX files, onnx.proto])
  AC_PATH_PROG([PROTOC_C], [protoc-c])
  AS_IF([test "$with_onnx" != no], [
    PKG_CHECK_MODULES([PROTOBUF_C], [libprotobuf-c >= 1.3], [kiln_onnx=yes], [kiln_onnx=no])
    for kiln_file in /usr/include /usr/local/include; do
      for kiln_name in onnx.proto onnx-ml.proto; do
        AS_IF([test -z "$ONNX_PROTO" && test -r "$kiln_file/onnx/$kiln_name"],
          [ONNX_PROTO=$kiln_file/onnx/$kiln_name])
      done
    done
    AS_IF([test -z "$PROTOC_C" || test -z "$ONNX_PROTO"], [kiln_onnx=no])
    AS_IF([test "$kiln_onnx$with_onnx" = noyes],
      [AC_MSG_ERROR([libkiln-onnx needs protobuf-c, its compiler and the schema; on Debian and
        Ubuntu: apt-get install libprotobuf-c-dev protobuf-c-compiler libonnx-dev])])
    with_onnx=$kiln_onnx])
  AM_CONDITIONAL([ONNX], [test "$with_onnx" = yes])
  # libkiln-lm reads models in ONNX files by it.
  AS_IF([test "$with_onnx" = yes], [LM_REQUIRES="kiln-onnx = $PACKAGE_VERSION, "])
  AC_SUBST([LM_REQUIRES])
])

# What libkiln-lm cuts texts with.
AC_DEFUN([KILN_LM], [
  AC_ARG_WITH([lm],
    [AS_HELP_STRING([--with-lm], [build libkiln-lm, which runs language models: yes, no, or auto where
      libutf8proc is used (the default)])],
    [], [with_lm=auto])
  AS_IF([test "$with_lm$with_utf8proc" = yesno], [AC_MSG_ERROR([libkiln-lm needs libutf8proc])])
  AS_IF([test "$with_lm" != no], [with_lm=$with_utf8proc])
  AM_CONDITIONAL([LM], [test "$with_lm" = yes])
])

# What libkiln-mpi's ranks talk through: the first MPI that pkg-config knows, or the one that is named.
AC_DEFUN([KILN_MPI], [
  AC_ARG_WITH([mpi],
    [AS_HELP_STRING([--with-mpi], [build libkiln-mpi, with which ranks of MPI train together: yes, no,
      auto where MPI is installed (the default), or its name for pkg-config, such as mpich])],
    [], [with_mpi=auto])
  AC_ARG_VAR([MPIRUN], [what starts the ranks of tests])
  AS_CASE([$with_mpi], [no], [kiln_modules=], [yes | auto], [kiln_modules="ompi-c mpich mpi-c"],
    [kiln_modules=$with_mpi])
  MPI_MODULE=
  for kiln_module in $kiln_modules; do
    AS_IF([test -z "$MPI_MODULE" && $PKG_CONFIG --exists "$kiln_module"],
      [MPI_MODULE=$kiln_module])
  done
  AS_IF([test -n "$MPI_MODULE"], [
    PKG_CHECK_MODULES([MPI], [$MPI_MODULE])
    kiln_saved="$CFLAGS|$LIBS"
    CFLAGS="$CFLAGS $MPI_CFLAGS"
    LIBS="$MPI_LIBS $LIBS"
    AC_MSG_CHECKING([whether programs are linked with $MPI_MODULE])
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>]], [[return MPI_Finalize();]])],
      [kiln_mpi=yes], [kiln_mpi=no MPI_MODULE=])
    AC_MSG_RESULT([$kiln_mpi])
    CFLAGS=${kiln_saved%%|*}
    LIBS=${kiln_saved#*|}])
  AS_IF([test -n "$MPI_MODULE"], [
    AS_CASE([$MPI_MODULE], [ompi*], [kiln_names="mpirun.openmpi orterun"],
      [mpich*], [kiln_names="mpirun.mpich mpiexec.hydra"], [kiln_names=])
    AC_PATH_PROGS([MPIRUN], [$kiln_names mpirun mpiexec])
    with_mpi=$MPI_MODULE], [
    AS_CASE([$with_mpi], [no | auto], [with_mpi=no],
      [AC_MSG_ERROR([pkg-config knows no MPI; on Debian and Ubuntu: apt-get install libopenmpi-dev
        openmpi-bin, or libmpich-dev mpich])])])
  AC_SUBST([MPI_MODULE])
  AM_CONDITIONAL([MPI], [test -n "$MPI_MODULE"])
])
