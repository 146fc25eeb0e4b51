/* SPDX-License-Identifier: Apache-2.0 */
/* oneDNN as a peer (bench/process.h), called as a framework does: primitives made once, weights in the
 * layout that it wants. */
#include "peer_serve.hpp"

#include <cstring>
#include <unordered_map>

#include <dnnl.hpp>

using dnnl::memory;
using arguments = std::unordered_map<int, memory>;
using tag = memory::format_tag;

static dnnl::engine &engine()
{
  static dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

static dnnl::stream &stream()
{
  static dnnl::stream one(engine());
  return one;
}

static memory::desc describe(const memory::dims &dims, tag layout)
{
  return memory::desc(dims, memory::data_type::f32, layout);
}

static memory::dims dims_of(const shape &s)
{
  return memory::dims(s.begin(), s.end());
}

static size_t count(const shape &s)
{
  size_t product = 1;
  for (size_t dim : s)
    product *= dim;
  return product;
}

/* A copy of values in `layout`, put into the layout that `wanted` is. */
static memory load(const memory::desc &layout, const memory::desc &wanted, const float *values)
{
  memory plain(layout, engine());
  std::memcpy(plain.get_data_handle(), values, layout.get_size());
  if (layout == wanted)
    return plain;
  memory packed(wanted, engine());
  dnnl::reorder(plain, packed).execute(stream(), plain, packed);
  stream().wait();
  return packed;
}

static memory load(const memory::desc &layout, const float *values)
{
  return load(layout, layout, values);
}

static row make_row(const dnnl::primitive &primitive, const arguments &all)
{
  row r;
  r.run = [=] {
    primitive.execute(stream(), all);
    stream().wait();
  };
  r.result = [=](float *to) {
    memory y = all.at(DNNL_ARG_DST);
    std::memcpy(to, y.get_data_handle(), y.get_desc().get_size());
  };
  return r;
}

static row make_matmul(const std::vector<shape> &shapes, const float *in)
{
  auto a = describe(dims_of(shapes[0]), tag::ab), b = describe(dims_of(shapes[1]), tag::ab);
  auto y = describe({a.dims()[0], b.dims()[1]}, tag::ab);
  dnnl::matmul::primitive_desc made(dnnl::matmul::desc(a, b, y), engine());
  return make_row(dnnl::matmul(made), {{DNNL_ARG_SRC, load(a, in)},
                                       {DNNL_ARG_WEIGHTS, load(b, in + count(shapes[0]))},
                                       {DNNL_ARG_DST, memory(y, engine())}});
}

static row make_linear_gelu(const std::vector<shape> &shapes, const float *in)
{
  auto x = describe(dims_of(shapes[0]), tag::ab), w = describe(dims_of(shapes[1]), tag::ab);
  auto any = describe(dims_of(shapes[1]), tag::any);
  auto b = describe({1, w.dims()[1]}, tag::ab), y = describe({x.dims()[0], w.dims()[1]}, tag::ab);
  dnnl::post_ops gelu;
  dnnl::primitive_attr more;
  gelu.append_eltwise(1, dnnl::algorithm::eltwise_gelu_tanh, 0, 0);
  more.set_post_ops(gelu);
  dnnl::matmul::primitive_desc made(dnnl::matmul::desc(x, any, b, y), more, engine());
  const float *weights = in + count(shapes[0]), *bias = weights + count(shapes[1]);
  return make_row(dnnl::matmul(made), {{DNNL_ARG_SRC, load(x, in)},
                                       {DNNL_ARG_WEIGHTS, load(w, made.weights_desc(), weights)},
                                       {DNNL_ARG_BIAS, load(b, bias)},
                                       {DNNL_ARG_DST, memory(y, engine())}});
}

/* x[n,h,w,c], kernel[3,3,c,o], b[o]; the library's dimensions are n, c, h, w and o, c, 3, 3. */
static row make_conv(const std::vector<shape> &shapes, const float *in)
{
  auto i = dims_of(shapes[0]), k = dims_of(shapes[1]);
  auto x = describe({i[0], i[3], i[1], i[2]}, tag::nhwc);
  auto w = describe({k[3], k[2], k[0], k[1]}, tag::hwio);
  auto any = describe({k[3], k[2], k[0], k[1]}, tag::any);
  auto b = describe({k[3]}, tag::x), y = describe({i[0], k[3], i[1], i[2]}, tag::nhwc);
  dnnl::post_ops relu;
  dnnl::primitive_attr more;
  relu.append_eltwise(1, dnnl::algorithm::eltwise_relu, 0, 0);
  more.set_post_ops(relu);
  dnnl::convolution_forward::desc wanted(dnnl::prop_kind::forward_inference,
                                         dnnl::algorithm::convolution_auto, x, any, b, y, {1, 1},
                                         {1, 1}, {1, 1});
  dnnl::convolution_forward::primitive_desc made(wanted, more, engine());
  const float *weights = in + count(shapes[0]), *bias = weights + count(shapes[1]);
  return make_row(dnnl::convolution_forward(made),
                  {{DNNL_ARG_SRC, load(x, in)},
                   {DNNL_ARG_WEIGHTS, load(w, made.weights_desc(), weights)},
                   {DNNL_ARG_BIAS, load(b, bias)},
                   {DNNL_ARG_DST, memory(y, engine())}});
}

static row make_softmax(const std::vector<shape> &shapes, const float *in)
{
  auto x = describe(dims_of(shapes[0]), tag::ab);
  dnnl::softmax_forward::desc wanted(dnnl::prop_kind::forward_inference, x, 1);
  dnnl::softmax_forward::primitive_desc made(wanted, engine());
  return make_row(dnnl::softmax_forward(made),
                  {{DNNL_ARG_SRC, load(x, in)}, {DNNL_ARG_DST, memory(x, engine())}});
}

static row make_layer_norm(const std::vector<shape> &shapes, const float *in)
{
  using flags = dnnl::normalization_flags;
  auto x = describe(dims_of(shapes[0]), tag::ab), s = describe(dims_of(shapes[1]), tag::x);
  dnnl::layer_normalization_forward::desc wanted(dnnl::prop_kind::forward_inference, x, 1e-5f,
                                                 flags::use_scale | flags::use_shift);
  dnnl::layer_normalization_forward::primitive_desc made(wanted, engine());
  const float *scale = in + count(shapes[0]), *shift = scale + count(shapes[1]);
  return make_row(dnnl::layer_normalization_forward(made),
                  {{DNNL_ARG_SRC, load(x, in)},
                   {DNNL_ARG_SCALE, load(s, scale)},
                   {DNNL_ARG_SHIFT, load(s, shift)},
                   {DNNL_ARG_DST, memory(x, engine())}});
}

int main()
{
  serve({{"matmul", make_matmul},
         {"linear_gelu", make_linear_gelu},
         {"conv", make_conv},
         {"softmax", make_softmax},
         {"layer_norm", make_layer_norm}});
}
