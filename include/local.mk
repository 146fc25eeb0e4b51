# SPDX-License-Identifier: Apache-2.0
# ---- headers ----

kilnincludedir = $(includedir)/kiln
kilninclude_HEADERS = \
	include/kiln/attention.h \
	include/kiln/batch.h \
	include/kiln/buffer.h \
	include/kiln/cache.h \
	include/kiln/context.h \
	include/kiln/convolution.h \
	include/kiln/custom.h \
	include/kiln/device.h \
	include/kiln/executor.h \
	include/kiln/export.h \
	include/kiln/files.h \
	include/kiln/gradient.h \
	include/kiln/interpolation.h \
	include/kiln/kiln.h \
	include/kiln/kiln.hpp \
	include/kiln/loop.h \
	include/kiln/models.h \
	include/kiln/movement.h \
	include/kiln/normalization.h \
	include/kiln/now.h \
	include/kiln/opencl.h \
	include/kiln/operations.h \
	include/kiln/parallel.h \
	include/kiln/product.h \
	include/kiln/random.h \
	include/kiln/recurrent.h \
	include/kiln/resize.h \
	include/kiln/shape.h \
	include/kiln/signal.h \
	include/kiln/status.h \
	include/kiln/training.h \
	include/kiln/types.h
generated_headers = \
	include/kiln/elementwise.h \
	include/kiln/elementwise.hpp \
	include/kiln/reductions.h \
	include/kiln/reductions.hpp \
	include/kiln/typemap.h
nodist_kilninclude_HEADERS = \
	$(generated_headers) \
	include/kiln/version.h

include/kiln/elementwise.h: lib/ops/elementwise.def lib/ops/prototypes.awk
	$(AM_V_GEN)$(MKDIR_P) $(@D)
	$(AM_V_at)$(AWK) -f $(srcdir)/lib/ops/prototypes.awk $(srcdir)/lib/ops/elementwise.def >$@.new
	$(AM_V_at)mv $@.new $@

include/kiln/reductions.h: lib/ops/reduce.def lib/ops/prototypes.awk
	$(AM_V_GEN)$(MKDIR_P) $(@D)
	$(AM_V_at)$(AWK) -f $(srcdir)/lib/ops/prototypes.awk $(srcdir)/lib/ops/reduce.def >$@.new
	$(AM_V_at)mv $@.new $@

include/kiln/elementwise.hpp: lib/ops/elementwise.def lib/ops/prototypes.awk
	$(AM_V_GEN)$(MKDIR_P) $(@D)
	$(AM_V_at)$(AWK) -v cplusplus=1 -f $(srcdir)/lib/ops/prototypes.awk \
	    $(srcdir)/lib/ops/elementwise.def >$@.new
	$(AM_V_at)mv $@.new $@

include/kiln/reductions.hpp: lib/ops/reduce.def lib/ops/prototypes.awk
	$(AM_V_GEN)$(MKDIR_P) $(@D)
	$(AM_V_at)$(AWK) -v cplusplus=1 -f $(srcdir)/lib/ops/prototypes.awk \
	    $(srcdir)/lib/ops/reduce.def >$@.new
	$(AM_V_at)mv $@.new $@

include/kiln/typemap.h: lib/ops/types.def lib/ops/typemap.awk
	$(AM_V_GEN)$(MKDIR_P) $(@D)
	$(AM_V_at)$(AWK) -f $(srcdir)/lib/ops/typemap.awk $(srcdir)/lib/ops/types.def >$@.new
	$(AM_V_at)mv $@.new $@
