# SPDX-License-Identifier: Apache-2.0
# ---- examples: built by make, run by make check ----

examples = \
	examples/digits \
	examples/executor \
	examples/hello \
	examples/mandelbrot \
	examples/opencl \
	examples/serve_digits \
	examples/train_digits \
	examples/train_digits_conv
noinst_PROGRAMS = $(examples)
examples_digits_SOURCES = \
	examples/digits.c \
	examples/digits_data.c \
	examples/digits_data.h
examples_digits_CPPFLAGS = \
	$(AM_CPPFLAGS) \
	$(ZLIB_CFLAGS) \
	-DDIGITS_DATA='"$(abs_srcdir)/examples/data/digits.csv.gz"'
examples_digits_LDADD = libkiln.la $(ZLIB_LIBS)
examples_train_digits_SOURCES = \
	examples/digits_data.c \
	examples/digits_data.h \
	examples/digits_saved.c \
	examples/digits_saved.h \
	examples/digits_train.c \
	examples/digits_train.h \
	examples/train_digits.c
examples_train_digits_conv_SOURCES = \
	examples/digits_data.c \
	examples/digits_data.h \
	examples/digits_saved.c \
	examples/digits_saved.h \
	examples/digits_train.c \
	examples/digits_train.h \
	examples/train_digits_conv.c
examples_train_digits_conv_CPPFLAGS = $(examples_digits_CPPFLAGS)
examples_train_digits_conv_LDADD = libkiln.la $(ZLIB_LIBS) -lm
examples_train_digits_CPPFLAGS = $(examples_digits_CPPFLAGS)
examples_train_digits_LDADD = libkiln.la $(ZLIB_LIBS) -lm
examples_serve_digits_SOURCES = \
	examples/digits_data.c \
	examples/digits_data.h \
	examples/digits_saved.c \
	examples/digits_saved.h \
	examples/digits_train.c \
	examples/digits_train.h \
	examples/serve_digits.c \
	examples/serve_load.c \
	examples/serve_load.h \
	examples/serve_metrics.c \
	examples/serve_metrics.h \
	examples/serve_server.c \
	examples/serve_server.h
examples_serve_digits_CPPFLAGS = $(examples_digits_CPPFLAGS) $(MICROHTTPD_CFLAGS)
examples_serve_digits_LDADD = libkiln.la $(ZLIB_LIBS) $(MICROHTTPD_LIBS) -lm -lpthread
examples_executor_LDADD = libkiln.la -lm -lpthread
examples_hello_LDADD = libkiln.la
examples_opencl_LDADD = libkiln.la $(OPENCL_LIBS) -lm
