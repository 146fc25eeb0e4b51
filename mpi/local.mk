# SPDX-License-Identifier: Apache-2.0
# ---- libkiln-mpi: training by the ranks of MPI, on kiln's public functions alone ----

mpi_sources = \
	lib/util/format.c \
	lib/util/format.h \
	mpi/broadcast.c \
	mpi/create.c \
	mpi/passage.c \
	mpi/ranks.h \
	mpi/reducer.c \
	mpi/shards.c \
	mpi/works.c
mpi_example_sources = \
	examples/digits_data.c \
	examples/digits_data.h \
	examples/train_mpi.c

if MPI
kilninclude_HEADERS += include/kiln/mpi.h
pkgconfig_DATA += kiln-mpi.pc
lib_LTLIBRARIES += libkiln-mpi.la
MPI_CPPFLAGS = \
	-I$(top_builddir)/include \
	-I$(top_srcdir)/include \
	-I$(top_srcdir) \
	-I$(top_srcdir)/lib \
	$(KILN_DEFINES) \
	$(MPI_CFLAGS)

libkiln_mpi_la_SOURCES = $(mpi_sources)
libkiln_mpi_la_CPPFLAGS = $(MPI_CPPFLAGS)
libkiln_mpi_la_CFLAGS = $(AM_CFLAGS) $(KILN_HIDDEN)
libkiln_mpi_la_LIBADD = libkiln.la $(MPI_LIBS)
libkiln_mpi_la_LDFLAGS = \
	-version-info $(KILN_ABI) \
	-no-undefined
if VERSION_SCRIPTS
libkiln_mpi_la_LDFLAGS += -Wl,--version-script=$(srcdir)/mpi/kiln-mpi.map
libkiln_mpi_la_DEPENDENCIES = libkiln.la mpi/kiln-mpi.map
else
libkiln_mpi_la_LDFLAGS += -export-symbols-regex '^kiln_mpi_[a-z]'
endif

# Run by tests/mpi/test_mpi.sh, as many ranks of each.
noinst_PROGRAMS += examples/train_mpi
examples_train_mpi_SOURCES = $(mpi_example_sources)
examples_train_mpi_CPPFLAGS = $(examples_digits_CPPFLAGS) $(MPI_CFLAGS)
examples_train_mpi_LDADD = libkiln-mpi.la libkiln.la $(ZLIB_LIBS) $(MPI_LIBS) -lm
check_PROGRAMS += tests/mpi/ranks
tests_mpi_ranks_SOURCES = \
	tests/mpi/faults.c \
	tests/mpi/network.c \
	tests/mpi/network.h \
	tests/mpi/ranks.c \
	tests/mpi/sharded.c \
	tests/support/layer.c \
	tests/support/layer.h
tests_mpi_ranks_CPPFLAGS = $(MPI_CPPFLAGS)
tests_mpi_ranks_LDADD = libkiln-mpi.la libkiln.la $(MPI_LIBS) $(OPENCL_LIBS)
endif
