/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  kiln in C++17: handles that own, shapes as lists, operators. All of it is inline, above the C
 *  interface, whose functions take these objects where one is missing here (`x.id()`, `b.get()`).
 *
 *  @code
 *  kiln::context context;
 *  kiln::batch b(context);
 *  std::vector<float> data{1, 2, 3, 4, 5, 6}, found;
 *  auto x = b.upload({2, 3}, data);
 *  kiln::softmax(x * 2 + 1, {-1}).read(found);
 *  if (b.execute())
 *      std::puts(b.error());
 *  @endcode
 *
 *  Errors are statuses, as in C: a batch keeps its first one, a handle that could not be made is
 *  empty, and kiln_last_error() has the sentence. Where KILN_EXCEPTIONS is defined before this file
 *  is included, each of them is thrown as a kiln::error instead. No function throws without it,
 *  memory of std::vector and its like apart.
 *
 *  Handles are moved, not copied. A tensor is a number and a pointer to its batch, to be copied
 *  freely, and names nothing once the batch is reset or gone. */
#ifndef KILN_KILN_HPP
#define KILN_KILN_HPP

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <kiln/kiln.h>

#ifdef KILN_EXCEPTIONS
#include <stdexcept>
#define KILN_NODISCARD
#else
/** A status that nobody looks at would be lost. */
#define KILN_NODISCARD [[nodiscard]]
#endif

namespace kiln
{

// ---- errors ----

using status = kiln_status;

#ifdef KILN_EXCEPTIONS
/** A status below 0 with its sentence. */
class error : public std::runtime_error
{
  public:
    error(kiln_status code, const char *text) : std::runtime_error(text), code_(code)
    {
    }
    kiln_status code() const noexcept
    {
        return code_;
    }

  private:
    kiln_status code_;
};
#endif

namespace detail
{

inline kiln_status told(kiln_status code)
{
#ifdef KILN_EXCEPTIONS
    if (code < 0)
        throw error(code, kiln_last_error());
#endif
    return code;
}

/** Of a call on a batch, which has the sentence if it has failed. */
inline kiln_status told(const kiln_batch *batch, kiln_status code)
{
#ifdef KILN_EXCEPTIONS
    if (code < 0)
        throw error(code, kiln_batch_status(batch) ? kiln_batch_error(batch) : kiln_last_error());
#endif
    (void)batch;
    return code;
}

#ifdef __cpp_exceptions
/** What a function that C called has thrown in this thread, and calling() has not yet handed on. */
inline std::exception_ptr &thrown()
{
    thread_local std::exception_ptr pending;
    return pending;
}
#endif

/** What C calls back, which nothing may be thrown through: the batch has the error, or what was
 *  thrown waits until C has returned. */
template <class F> kiln_status called(kiln_batch *batch, const F &function)
{
    (void)batch;
#ifdef __cpp_exceptions
    try {
        function();
#ifdef KILN_EXCEPTIONS
    } catch (const error &mistake) {
        if (!kiln_batch_status(batch)) /* else it says more than this one */
            thrown() = std::current_exception();
        return mistake.code();
#endif
    } catch (...) {
        thrown() = std::current_exception();
        return KILN_INVALID_ARGUMENT;
    }
#else
    function();
#endif
    return KILN_OK;
}

/** A call of C that calls such functions; what they throw is thrown again behind it. */
template <class F> kiln_status calling(const F &function)
{
#ifdef __cpp_exceptions
    std::exception_ptr outer = std::exchange(thrown(), nullptr);
    kiln_status code = function();
    std::exception_ptr mine = std::exchange(thrown(), outer);
    if (mine)
        std::rethrow_exception(mine);
    return told(code);
#else
    return told(function());
#endif
}

/** Something that a function of C gives back: moved, not copied. */
template <class T, void (*Release)(T *)> class handle
{
  public:
    handle() = default;
    explicit handle(T *object) : object_(object)
    {
    }
    handle(handle &&other) noexcept : object_(std::exchange(other.object_, nullptr))
    {
    }
    handle &operator=(handle &&other) noexcept
    {
        if (this != &other)
            reset(std::exchange(other.object_, nullptr));
        return *this;
    }
    handle(const handle &) = delete;
    handle &operator=(const handle &) = delete;
    ~handle()
    {
        Release(object_);
    }

    T *get() const
    {
        return object_;
    }
    explicit operator bool() const
    {
        return object_ != nullptr;
    }
    void reset(T *object = nullptr)
    {
        Release(std::exchange(object_, object));
    }
    /** What it owned, which is the caller's from then on. */
    T *release()
    {
        return std::exchange(object_, nullptr);
    }

  protected:
    T *object_ = nullptr;
};

template <class T> void free_memory(T *content)
{
    kiln_free(const_cast<std::remove_const_t<T> *>(content));
}

/** What a function of C leaves to kiln_free(). */
template <class T> class memory : public handle<T, free_memory<T>>
{
  public:
    using handle<T, free_memory<T>>::handle;
    /** Empty for none. */
    std::string text() const
    {
        return this->object_ ? this->object_ : "";
    }
};

/** As many elements as `count` says, else NULL, which no function takes. */
template <class T> const void *elements(const std::vector<T> &content, std::size_t count)
{
    static const T none = T();
    return content.size() != count ? nullptr : content.empty() ? &none : content.data();
}

/** So many microseconds of a time: none of one below 0, or of NaN, and no end of a very long one.
 */
template <class Rep, class Period>
std::uint64_t microseconds(const std::chrono::duration<Rep, Period> &time)
{
    double count = std::chrono::duration<double, std::micro>(time).count();
    return !(count > 0) ? 0 : count >= 0x1p63 ? UINT64_MAX : static_cast<std::uint64_t>(count);
}

/** A structure of options with its defaults. */
template <class T, void (*Init)(T *, std::size_t)> struct options : T {
    options() : T()
    {
        Init(this, sizeof(T));
    }
};

} // namespace detail

using attention_options = detail::options<kiln_attention_options, kiln_attention_options_init>;
using context_options = detail::options<kiln_context_options, kiln_context_options_init>;
using conv_options = detail::options<kiln_conv_options, kiln_conv_options_init>;
using cross_entropy_options =
    detail::options<kiln_cross_entropy_options, kiln_cross_entropy_options_init>;
using custom_kernel = detail::options<kiln_custom_kernel, kiln_custom_kernel_init>;
using executor_options = detail::options<kiln_executor_options, kiln_executor_options_init>;
using loop_options = detail::options<kiln_loop_options, kiln_loop_options_init>;
using pool_options = detail::options<kiln_pool_options, kiln_pool_options_init>;
using request_options = detail::options<kiln_request_options, kiln_request_options_init>;
using recurrent = detail::options<kiln_recurrent, kiln_recurrent_init>;
using resize_options = detail::options<kiln_resize_options, kiln_resize_options_init>;

/** Options of an optimiser: its method's defaults. */
struct optimizer_options : kiln_optimizer_options {
    explicit optimizer_options(kiln_optimizer_method of) : kiln_optimizer_options()
    {
        kiln_optimizer_options_init(of, this);
    }
};

// ---- types and shapes ----

/** The type of kiln's that a type of C++ is. */
template <class T> struct type_of;
template <> struct type_of<float> : std::integral_constant<kiln_type, KILN_F32> {
};
template <> struct type_of<std::int32_t> : std::integral_constant<kiln_type, KILN_I32> {
};
template <> struct type_of<std::uint8_t> : std::integral_constant<kiln_type, KILN_U8> {
};
template <> struct type_of<std::int64_t> : std::integral_constant<kiln_type, KILN_I64> {
};
template <> struct type_of<std::int8_t> : std::integral_constant<kiln_type, KILN_I8> {
};

namespace detail
{

/** Whether elements of C++ are those of a type: of the same type, or for what C++ has no type of
 *  (the bits of halves, say) as wide. A bool is a byte, and blocks are bytes. */
template <class T, class = typename type_of<T>::type> bool holds(kiln_type type, int)
{
    return type == type_of<T>::value ||
           (type_of<T>::value == KILN_U8 && (type == KILN_BOOL || kiln_type_block(type) > 1));
}
template <class T> bool holds(kiln_type type, long)
{
    return kiln_type_size(type) == sizeof(T);
}

} // namespace detail

/** The type that operations read one as. */
inline kiln_type computed(kiln_type type)
{
    switch (type) {
    case KILN_BOOL: return KILN_U8;
    case KILN_F16:
    case KILN_BF16: return KILN_F32;
    default: return kiln_type_block(type) > 1 ? KILN_F32 : type;
    }
}

/** Up to KILN_MAX_RANK dimensions; a shape of more is refused by whatever it is given to. */
class shape
{
  public:
    shape() = default; /**< of a single element */
    shape(std::initializer_list<std::size_t> dims) : shape(dims.begin(), dims.size())
    {
    }
    explicit shape(const std::vector<std::size_t> &dims) : shape(dims.data(), dims.size())
    {
    }
    shape(const std::size_t *dims, std::size_t rank) : rank_(rank)
    {
        for (std::size_t i = 0; i < rank && i < KILN_MAX_RANK; i++)
            dims_[i] = dims[i];
    }

    std::size_t rank() const
    {
        return rank_;
    }
    const std::size_t *dims() const
    {
        return dims_;
    }
    std::size_t operator[](std::size_t i) const
    {
        return dims_[i];
    }
    /** Elements. */
    std::size_t count() const
    {
        std::size_t all = 1;
        for (std::size_t i = 0; i < rank_ && i < KILN_MAX_RANK; i++)
            all *= dims_[i];
        return all;
    }
    friend bool operator==(const shape &a, const shape &b)
    {
        bool same = a.rank_ == b.rank_;
        for (std::size_t i = 0; i < a.rank_ && i < KILN_MAX_RANK && same; i++)
            same = a.dims_[i] == b.dims_[i];
        return same;
    }
    friend bool operator!=(const shape &a, const shape &b)
    {
        return !(a == b);
    }

  private:
    std::size_t rank_ = 0, dims_[KILN_MAX_RANK] = {};
};

namespace detail
{

/** The sentence for a vector that has not as many elements as a shape. */
inline std::string miscounted(const char *call, std::size_t count, const shape &of)
{
    std::string text = std::string(call) + ": " + std::to_string(count) + " elements for shape [";
    for (std::size_t i = 0; i < of.rank() && i < KILN_MAX_RANK; i++)
        text += (i ? "," : "") + std::to_string(of[i]);
    return text + "]";
}

/** The sentence for another number of things than there should be. */
inline std::string miscounted(const char *call, std::size_t count, const char *things,
                              std::size_t wanted)
{
    return std::string(call) + ": " + std::to_string(count) + " " + things + ", not " +
           std::to_string(wanted);
}

} // namespace detail

/** Axes, negative ones from the end; none at all are all of them. */
class axes
{
  public:
    axes() = default;
    axes(std::initializer_list<int> list) : axes_(list)
    {
    }
    std::size_t count() const
    {
        return axes_.size();
    }
    const int *get() const
    {
        return axes_.empty() ? nullptr : axes_.data();
    }

  private:
    std::vector<int> axes_;
};

// ---- contexts, buffers ----

/** One device with its queue, kernel cache and buffer pool. */
class context : public detail::handle<kiln_context, kiln_context_release>
{
  public:
    /** On the default device, or as the options say. Empty after an error. */
    explicit context(const kiln_context_options &options = context_options())
    {
        detail::told(kiln_context_create(&options, &object_));
    }
    /** Takes it over. */
    explicit context(kiln_context *object) : handle(object)
    {
    }

    KILN_NODISCARD kiln_status finish() const
    {
        return detail::told(kiln_context_finish(object_));
    }
    /** Zeros after an error, and so are the counters. */
    kiln_device_info device() const
    {
        kiln_device_info found = {};
        detail::told(kiln_context_device(object_, &found));
        return found;
    }
    kiln_context_stats stats() const
    {
        kiln_context_stats found = {};
        detail::told(kiln_context_get_stats(object_, &found));
        return found;
    }
    KILN_NODISCARD kiln_status trim() const
    {
        return detail::told(kiln_context_trim(object_));
    }
    KILN_NODISCARD kiln_status sync_cache() const
    {
        return detail::told(kiln_context_sync_cache(object_));
    }
    /** KILN_F32 after an error. */
    kiln_type best_precision() const
    {
        kiln_type found = KILN_F32;
        detail::told(kiln_context_best_precision(object_, &found));
        return found;
    }
};

namespace detail
{

inline std::vector<kiln_context *>
handles(std::initializer_list<std::reference_wrapper<const context>> contexts)
{
    std::vector<kiln_context *> all;
    for (const context &each : contexts)
        all.push_back(each.get());
    return all;
}

} // namespace detail

/** Device memory that outlives batches. */
class buffer : public detail::handle<kiln_buffer, kiln_buffer_release>
{
  public:
    buffer() = default;
    /** Takes it over. */
    explicit buffer(kiln_buffer *object) : handle(object)
    {
    }
    /** Undefined content. Empty after an error. */
    buffer(const context &of, kiln_type type, const kiln::shape &shape)
    {
        detail::told(kiln_buffer_create(of.get(), type, shape.rank(), shape.dims(), &object_));
    }
    /** With a content, which has as many elements as the shape. Empty after an error. */
    template <class T>
    buffer(const context &of, const kiln::shape &shape, const std::vector<T> &content)
        : buffer(of, type_of<T>::value, shape)
    {
        const void *data = detail::elements(content, shape.count());
        if (object_ && !data) {
            reset();
            detail::told(
                kiln_error_set(KILN_INVALID_ARGUMENT,
                               detail::miscounted("kiln::buffer", content.size(), shape).c_str()));
        }
        if (object_ && detail::told(kiln_buffer_write(object_, 0, data, bytes())))
            reset();
    }

    /** Another handle of the same memory. */
    buffer share() const
    {
        kiln_buffer_retain(object_);
        return buffer(object_);
    }
    /** What this process updates of weights where processes keep parts of them; empty after an
     *  error. */
    buffer shard(const context &of, const kiln_reducer *reducer) const
    {
        kiln_buffer *made = nullptr;
        detail::told(kiln_shard_create(of.get(), reducer, object_, &made));
        return buffer(made);
    }
    std::size_t bytes() const
    {
        return kiln_buffer_bytes(object_);
    }
    kiln_type type() const
    {
        kiln_type found = KILN_F32;
        return object_ && kiln_buffer_shape(object_, &found, nullptr, nullptr) ? KILN_F32 : found;
    }
    kiln::shape shape() const
    {
        std::size_t rank = 0, dims[KILN_MAX_RANK] = {};
        return kiln_buffer_shape(object_, nullptr, &rank, dims) ? kiln::shape()
                                                                : kiln::shape(dims, rank);
    }
    /** All of it: other types and sizes are errors. */
    template <class T> KILN_NODISCARD kiln_status write(const std::vector<T> &content) const
    {
        if (!fits<T>() || content.size() * sizeof(T) != bytes())
            return unfit("kiln::buffer::write: the content has not the buffer's type and size");
        const void *data = detail::elements(content, content.size());
        return detail::told(kiln_buffer_write(object_, 0, data, bytes()));
    }
    /** All of it; `content` is of its type and gets its size. */
    template <class T> KILN_NODISCARD kiln_status read(std::vector<T> &content) const
    {
        if (!fits<T>())
            return unfit("kiln::buffer::read: the vector has not the buffer's type");
        content.resize(bytes() / sizeof(T));
        return detail::told(
            kiln_buffer_read(object_, 0, content.data(), content.size() * sizeof(T)));
    }

  private:
    /** An empty handle is for the function of C to refuse. */
    template <class T> bool fits() const
    {
        return !object_ || detail::holds<T>(type(), 0);
    }
    static kiln_status unfit(const char *sentence)
    {
        return detail::told(kiln_error_set(KILN_INVALID_ARGUMENT, sentence));
    }
};

// ---- tensors ----

/** A value inside one batch. Operators record operations in it. */
class tensor
{
  public:
    tensor() = default; /**< none */
    tensor(kiln_batch *batch, kiln_tensor id) : batch_(batch), id_(id)
    {
    }

    kiln_batch *batch() const
    {
        return batch_;
    }
    kiln_tensor id() const
    {
        return id_;
    }
    /** False for none, as which a call that fails comes back. */
    explicit operator bool() const
    {
        return id_.id != 0;
    }

    kiln_type type() const
    {
        kiln_type found = KILN_F32;
        return kiln_tensor_shape(batch_, id_, &found, nullptr, nullptr) ? KILN_F32 : found;
    }
    kiln::shape shape() const
    {
        std::size_t rank = 0, dims[KILN_MAX_RANK] = {};
        return kiln_tensor_shape(batch_, id_, nullptr, &rank, dims) ? kiln::shape()
                                                                    : kiln::shape(dims, rank);
    }
    /** A constant of the type that this is computed in. */
    tensor like(double value) const;

    /** Ask for it: each run writes it there. The memory is borrowed until the last run. */
    kiln_status read(void *data, std::size_t bytes) const
    {
        return detail::told(batch_, kiln_read(batch_, id_, data, bytes));
    }
    /** The same, to a vector of its element type, which gets its size and keeps its place. */
    template <class T> kiln_status read(std::vector<T> &into) const
    {
        into.resize(shape().count());
        return read(into.data(), into.size() * sizeof(T));
    }
    /** The same, of a single element. */
    template <class T, class = typename type_of<T>::type> kiln_status read(T &into) const
    {
        return read(&into, sizeof into);
    }
    /** Have each run leave it in a buffer of its type and shape. */
    kiln_status store(const buffer &into) const
    {
        return detail::told(batch_, kiln_export(batch_, id_, into.get()));
    }

  private:
    kiln_batch *batch_ = nullptr;
    kiln_tensor id_ = {0};
};

namespace detail
{

inline tensor made(kiln_batch *batch, kiln_tensor id)
{
#ifdef KILN_EXCEPTIONS
    if (!id.id)
        throw error(batch ? kiln_batch_status(batch) : KILN_INVALID_ARGUMENT,
                    batch ? kiln_batch_error(batch) : kiln_last_error());
#endif
    return tensor(batch, id);
}

/** The same for a function of the batch that `a` is in. */
inline tensor made(const tensor &a, kiln_tensor id)
{
    return made(a.batch(), id);
}

inline std::vector<kiln_tensor> ids(const std::vector<tensor> &tensors)
{
    std::vector<kiln_tensor> all;
    for (const tensor &each : tensors)
        all.push_back(each.id());
    return all;
}

/** The first one's. */
inline kiln_batch *batch_of(const std::vector<tensor> &tensors)
{
    return tensors.empty() ? nullptr : tensors[0].batch();
}

} // namespace detail

inline tensor tensor::like(double value) const
{
    return detail::made(batch_, kiln_constant(batch_, computed(type()), value));
}

} // namespace kiln

// A function for each row of the tables of operations.
#include <kiln/elementwise.hpp>
#include <kiln/reductions.hpp>

namespace kiln
{

// ---- operators ----

inline tensor operator-(const tensor &a)
{
    return neg(a);
}

inline tensor operator+(const tensor &a)
{
    return a;
}

#define KILN_OPERATOR(symbol, function)                                                            \
    inline tensor operator symbol(const tensor &a, const tensor &b)                                \
    {                                                                                              \
        return function(a, b);                                                                     \
    }                                                                                              \
    inline tensor operator symbol(const tensor &a, double b)                                       \
    {                                                                                              \
        return function(a, b);                                                                     \
    }                                                                                              \
    inline tensor operator symbol(double a, const tensor &b)                                       \
    {                                                                                              \
        return function(a, b);                                                                     \
    }
KILN_OPERATOR(+, add)
KILN_OPERATOR(-, sub)
KILN_OPERATOR(*, mul)
KILN_OPERATOR(/, div)
KILN_OPERATOR(==, equal)
KILN_OPERATOR(!=, not_equal)
KILN_OPERATOR(<, less)
KILN_OPERATOR(<=, less_equal)
KILN_OPERATOR(>, greater)
KILN_OPERATOR(>=, greater_equal)
#undef KILN_OPERATOR

#define KILN_ASSIGNMENT(symbol, function)                                                          \
    inline tensor &operator symbol(tensor &a, const tensor &b)                                     \
    {                                                                                              \
        return a = function(a, b);                                                                 \
    }                                                                                              \
    inline tensor &operator symbol(tensor &a, double b)                                            \
    {                                                                                              \
        return a = function(a, b);                                                                 \
    }
KILN_ASSIGNMENT(+=, add)
KILN_ASSIGNMENT(-=, sub)
KILN_ASSIGNMENT(*=, mul)
KILN_ASSIGNMENT(/=, div)
#undef KILN_ASSIGNMENT

// ---- operations that are no rows of a table: as their namesakes in C ----

inline tensor cast(const tensor &x, kiln_type type)
{
    return detail::made(x, kiln_cast(x.batch(), x.id(), type));
}

inline tensor matmul(const tensor &a, const tensor &b)
{
    return detail::made(a, kiln_matmul(a.batch(), a.id(), b.id()));
}

/** With the last two dimensions of an operand swapped first. */
inline tensor matmul(const tensor &a, bool transpose_a, const tensor &b, bool transpose_b)
{
    return detail::made(
        a, kiln_matmul_transposed(a.batch(), a.id(), transpose_a, b.id(), transpose_b));
}

inline tensor dot(const tensor &a, const tensor &b)
{
    return detail::made(a, kiln_dot(a.batch(), a.id(), b.id()));
}

inline tensor reshape(const tensor &x, const shape &to)
{
    return detail::made(x, kiln_reshape(x.batch(), x.id(), to.rank(), to.dims()));
}

inline tensor broadcast(const tensor &x, const shape &to)
{
    return detail::made(x, kiln_broadcast(x.batch(), x.id(), to.rank(), to.dims()));
}

/** The last two dimensions swapped. */
inline tensor transpose(const tensor &x)
{
    return detail::made(x, kiln_transpose(x.batch(), x.id(), nullptr));
}

/** Dimension i of the result is dimension order[i] of x; there are as many. */
inline tensor transpose(const tensor &x, const shape &order)
{
    return detail::made(x, kiln_transpose(x.batch(), x.id(), order.dims()));
}

/** What is said of a dimension that a slice leaves whole; with a step of -1 alone it is turned. */
struct range {
    std::int64_t start = INT64_MIN, stop = INT64_MAX, step = 1;
};

/** x[start:stop:step] as numpy has it, a range for each dimension from the first on; the other
 *  dimensions stay whole. */
inline tensor slice(const tensor &x, std::initializer_list<range> ranges)
{
    std::int64_t start[KILN_MAX_RANK], stop[KILN_MAX_RANK], step[KILN_MAX_RANK];
    for (std::size_t i = 0; i < KILN_MAX_RANK; i++) {
        range each = i < ranges.size() ? ranges.begin()[i] : range();
        if (each.step < 0 && each.start == INT64_MIN)
            each.start = INT64_MAX; /* backwards the whole of it begins at its end */
        if (each.step < 0 && each.stop == INT64_MAX)
            each.stop = INT64_MIN;
        start[i] = each.start;
        stop[i] = each.stop;
        step[i] = each.step;
    }
    return detail::made(x, kiln_slice_clipped(x.batch(), x.id(), start, stop, step));
}

/** So many elements of this value before and behind, for each dimension of x. */
inline tensor pad(const tensor &x, const shape &low, const shape &high, double value = 0)
{
    return detail::made(x, kiln_pad(x.batch(), x.id(), low.dims(), high.dims(), value));
}

inline tensor concat(const std::vector<tensor> &parts, int axis = 0)
{
    kiln_batch *batch = detail::batch_of(parts);
    return detail::made(batch, kiln_concat(batch, parts.size(), detail::ids(parts).data(), axis));
}

inline tensor stack(const std::vector<tensor> &parts, int axis = 0)
{
    kiln_batch *batch = detail::batch_of(parts);
    return detail::made(batch, kiln_stack(batch, parts.size(), detail::ids(parts).data(), axis));
}

inline tensor gather(const tensor &x, const tensor &indices, int axis = 0)
{
    return detail::made(x, kiln_gather(x.batch(), x.id(), indices.id(), axis));
}

inline tensor scatter_add(const tensor &x, const tensor &indices, const tensor &values,
                          int axis = 0)
{
    return detail::made(x, kiln_scatter_add(x.batch(), x.id(), indices.id(), values.id(), axis));
}

inline tensor one_hot(const tensor &indices, std::size_t depth, kiln_type type = KILN_F32)
{
    return detail::made(indices, kiln_one_hot(indices.batch(), indices.id(), depth, type));
}

inline tensor cumsum(const tensor &x, int axis, bool reverse = false)
{
    return detail::made(x, kiln_cumsum(x.batch(), x.id(), axis, reverse));
}

inline tensor softmax(const tensor &x, const axes &over)
{
    return detail::made(x, kiln_softmax(x.batch(), x.id(), over.count(), over.get()));
}

inline tensor log_softmax(const tensor &x, const axes &over)
{
    return detail::made(x, kiln_log_softmax(x.batch(), x.id(), over.count(), over.get()));
}

inline tensor logsumexp(const tensor &x, const axes &over = {}, bool keep_dims = false)
{
    return detail::made(x, kiln_logsumexp(x.batch(), x.id(), over.count(), over.get(), keep_dims));
}

inline tensor variance(const tensor &x, const axes &over = {}, double correction = 0,
                       bool keep_dims = false)
{
    return detail::made(
        x, kiln_variance(x.batch(), x.id(), over.count(), over.get(), correction, keep_dims));
}

inline tensor norm(const tensor &x, const axes &over = {}, bool keep_dims = false)
{
    return detail::made(x, kiln_norm(x.batch(), x.id(), over.count(), over.get(), keep_dims));
}

inline tensor layer_norm(const tensor &x, const tensor &scale, const tensor &shift,
                         const axes &over = {-1}, double epsilon = 1e-5)
{
    return detail::made(x, kiln_layer_norm(x.batch(), x.id(), scale.id(), shift.id(), over.count(),
                                           over.get(), epsilon));
}

inline tensor rms_norm(const tensor &x, const tensor &scale, const axes &over = {-1},
                       double epsilon = 1e-5)
{
    return detail::made(
        x, kiln_rms_norm(x.batch(), x.id(), scale.id(), over.count(), over.get(), epsilon));
}

inline tensor attention(const tensor &q, const tensor &k, const tensor &v,
                        const tensor &mask = tensor(),
                        const kiln_attention_options &options = attention_options())
{
    return detail::made(q, kiln_attention(q.batch(), q.id(), k.id(), v.id(), mask.id(), &options));
}

inline tensor attention_with_lengths(const tensor &q, const tensor &k, const tensor &v,
                                     const tensor &mask, const tensor &lengths,
                                     const kiln_attention_options &options = attention_options())
{
    return detail::made(q, kiln_attention_with_lengths(q.batch(), q.id(), k.id(), v.id(), mask.id(),
                                                       lengths.id(), &options));
}

inline tensor conv(const tensor &x, const tensor &w,
                   const kiln_conv_options &options = conv_options())
{
    return detail::made(x, kiln_conv(x.batch(), x.id(), w.id(), &options));
}

inline tensor max_pool(const tensor &x, const shape &window,
                       const kiln_pool_options &options = pool_options())
{
    return detail::made(x, kiln_max_pool(x.batch(), x.id(), window.dims(), &options, nullptr));
}

inline tensor avg_pool(const tensor &x, const shape &window,
                       const kiln_pool_options &options = pool_options())
{
    return detail::made(x, kiln_avg_pool(x.batch(), x.id(), window.dims(), &options));
}

inline tensor dropout(const tensor &x, double probability, const tensor &key)
{
    return detail::made(x, kiln_dropout(x.batch(), x.id(), probability, key.id()));
}

inline tensor mean_squared_error(const tensor &x, const tensor &target)
{
    return detail::made(x, kiln_mean_squared_error(x.batch(), x.id(), target.id()));
}

inline tensor cross_entropy(const tensor &logits, const tensor &labels)
{
    return detail::made(logits, kiln_cross_entropy(logits.batch(), logits.id(), labels.id()));
}

inline tensor cross_entropy(const tensor &logits, const tensor &labels,
                            const kiln_cross_entropy_options &options)
{
    return detail::made(
        logits, kiln_cross_entropy_with(logits.batch(), logits.id(), labels.id(), &options));
}

inline tensor binary_cross_entropy(const tensor &logits, const tensor &target)
{
    return detail::made(logits,
                        kiln_binary_cross_entropy(logits.batch(), logits.id(), target.id()));
}

inline tensor pad_by(const tensor &x, const shape &low, const shape &high, kiln_padding padding)
{
    return detail::made(x, kiln_pad_by(x.batch(), x.id(), low.dims(), high.dims(), padding));
}

inline tensor triangle(const tensor &x, bool upper, std::int64_t diagonal = 0)
{
    return detail::made(x, kiln_triangle(x.batch(), x.id(), upper, diagonal));
}

inline tensor scatter(const tensor &x, const tensor &indices, const tensor &values, int axis,
                      kiln_scatter_mode mode)
{
    return detail::made(x, kiln_scatter(x.batch(), x.id(), indices.id(), values.id(), axis, mode));
}

inline tensor gather_elements(const tensor &x, const tensor &indices, int axis)
{
    return detail::made(x, kiln_gather_elements(x.batch(), x.id(), indices.id(), axis));
}

inline tensor scatter_elements(const tensor &x, const tensor &indices, const tensor &values,
                               int axis, kiln_scatter_mode mode)
{
    return detail::made(
        x, kiln_scatter_elements(x.batch(), x.id(), indices.id(), values.id(), axis, mode));
}

inline tensor slice_at(const tensor &x, const tensor &start, std::size_t count, int axis)
{
    return detail::made(x, kiln_slice_at(x.batch(), x.id(), start.id(), count, axis));
}

inline tensor update_slice(const tensor &x, const tensor &part, const tensor &start, int axis)
{
    return detail::made(x, kiln_update_slice(x.batch(), x.id(), part.id(), start.id(), axis));
}

inline tensor gather_nd(const tensor &x, const tensor &indices, std::size_t batch_dims = 0)
{
    return detail::made(x, kiln_gather_nd(x.batch(), x.id(), indices.id(), batch_dims));
}

inline tensor scatter_nd(const tensor &x, const tensor &indices, const tensor &values,
                         kiln_scatter_mode mode)
{
    return detail::made(x, kiln_scatter_nd(x.batch(), x.id(), indices.id(), values.id(), mode));
}

inline tensor sort(const tensor &x, int axis = -1, bool descending = false)
{
    return detail::made(x, kiln_sort(x.batch(), x.id(), axis, descending));
}

inline tensor argsort(const tensor &x, int axis = -1, bool descending = false)
{
    return detail::made(x, kiln_argsort(x.batch(), x.id(), axis, descending));
}

/** The k largest along an axis, or the smallest, in order; `positions` receives where they were. */
inline tensor topk(const tensor &x, std::size_t k, int axis = -1, bool smallest = false,
                   tensor *positions = nullptr)
{
    kiln_tensor found = {0};
    tensor values = detail::made(
        x, kiln_topk(x.batch(), x.id(), k, axis, smallest, positions ? &found : nullptr));
    if (positions)
        *positions = tensor(x.batch(), found);
    return values;
}

/** Cut into parts of these sizes along an axis; empty after an error. */
inline std::vector<tensor> split(const tensor &x, int axis, const std::vector<std::size_t> &sizes)
{
    std::vector<kiln_tensor> parts(sizes.size());
    std::vector<tensor> found;
    if (!detail::told(x.batch(), kiln_split(x.batch(), x.id(), axis, sizes.size(), sizes.data(),
                                            parts.data())))
        for (kiln_tensor part : parts)
            found.push_back(tensor(x.batch(), part));
    return found;
}

inline tensor cumsum_exclusive(const tensor &x, int axis, bool reverse = false)
{
    return detail::made(x, kiln_cumsum_exclusive(x.batch(), x.id(), axis, reverse));
}

inline tensor batch_norm(const tensor &x, const tensor &scale, const tensor &shift,
                         const tensor &mean, const tensor &variance, int axis = 1,
                         double epsilon = 1e-5)
{
    return detail::made(x, kiln_batch_norm(x.batch(), x.id(), scale.id(), shift.id(), mean.id(),
                                           variance.id(), axis, epsilon));
}

/** With the batch's own statistics, which `mean` and `variance` receive. */
inline tensor batch_norm_train(const tensor &x, const tensor &scale, const tensor &shift, int axis,
                               double epsilon, tensor *mean = nullptr, tensor *variance = nullptr)
{
    kiln_tensor means = {0}, variances = {0};
    tensor y = detail::made(x, kiln_batch_norm_train(x.batch(), x.id(), scale.id(), shift.id(),
                                                     axis, epsilon, &means, &variances));
    if (mean)
        *mean = tensor(x.batch(), means);
    if (variance)
        *variance = tensor(x.batch(), variances);
    return y;
}

inline tensor group_norm(const tensor &x, const tensor &scale, const tensor &shift,
                         std::size_t groups, int axis = 1, double epsilon = 1e-5)
{
    return detail::made(
        x, kiln_group_norm(x.batch(), x.id(), scale.id(), shift.id(), groups, axis, epsilon));
}

inline tensor instance_norm(const tensor &x, const tensor &scale, const tensor &shift, int axis = 1,
                            double epsilon = 1e-5)
{
    return detail::made(
        x, kiln_instance_norm(x.batch(), x.id(), scale.id(), shift.id(), axis, epsilon));
}

inline tensor local_response_norm(const tensor &x, int axis, std::size_t size, double alpha = 1e-4,
                                  double beta = 0.75, double bias = 1)
{
    return detail::made(x,
                        kiln_local_response_norm(x.batch(), x.id(), axis, size, alpha, beta, bias));
}

inline tensor rotary(const tensor &x, const tensor &cosine, const tensor &sine,
                     bool interleaved = false)
{
    return detail::made(x, kiln_rotary(x.batch(), x.id(), cosine.id(), sine.id(), interleaved));
}

inline tensor conv_transposed(const tensor &x, const tensor &w,
                              const kiln_conv_options &options = conv_options())
{
    return detail::made(x, kiln_conv_transposed(x.batch(), x.id(), w.id(), &options));
}

inline tensor lp_pool(const tensor &x, const shape &window, double p,
                      const kiln_pool_options &options = pool_options())
{
    return detail::made(x, kiln_lp_pool(x.batch(), x.id(), window.dims(), p, &options));
}

/** Einstein's sum: `einsum("ij,jk->ik", {a, b})`. */
inline tensor einsum(const char *equation, const std::vector<tensor> &operands)
{
    kiln_batch *batch = detail::batch_of(operands);
    return detail::made(
        batch, kiln_einsum(batch, equation, operands.size(), detail::ids(operands).data()));
}

/** i8 values, and the scale of each slice over these axes in `scale`. */
inline tensor quantize(const tensor &x, const axes &over, tensor &scale)
{
    kiln_tensor found = {0};
    tensor y = detail::made(x, kiln_quantize(x.batch(), x.id(), over.count(), over.get(), &found));
    scale = tensor(x.batch(), found);
    return y;
}

/** Of i8 operands, or of an f32 one, whose scale is none, by an i8 one. */
inline tensor matmul_quantized(const tensor &a, const tensor &a_scale, const tensor &b,
                               bool transpose_b, const tensor &b_scale)
{
    return detail::made(a, kiln_matmul_quantized(a.batch(), a.id(), a_scale.id(), b.id(),
                                                 transpose_b, b_scale.id()));
}

/** Blocks of q8_0 or q4_0 of floats, on the host: what upload() and buffers of that type take. */
inline kiln_status quantize_blocks(kiln_type type, const std::vector<float> &values,
                                   std::vector<std::uint8_t> &blocks)
{
    const std::size_t block = kiln_type_block(type);
    blocks.resize(block ? values.size() / block * kiln_type_size(type) : 0);
    return kiln_quantize_blocks(type, values.size(), values.data(), blocks.data(), blocks.size());
}

inline tensor random_split(const tensor &key, std::uint32_t number)
{
    return detail::made(key, kiln_random_split(key.batch(), key.id(), number));
}

/** To these sizes. */
inline tensor resize(const tensor &x, const shape &to,
                     const kiln_resize_options &options = resize_options())
{
    return detail::made(x, kiln_resize(x.batch(), x.id(), to.dims(), &options));
}

inline tensor depth_to_space(const tensor &x, std::size_t block, kiln_block_order order,
                             kiln_layout layout)
{
    return detail::made(x, kiln_depth_to_space(x.batch(), x.id(), block, order, layout));
}

inline tensor space_to_depth(const tensor &x, std::size_t block, kiln_block_order order,
                             kiln_layout layout)
{
    return detail::made(x, kiln_space_to_depth(x.batch(), x.id(), block, order, layout));
}

inline tensor dft(const tensor &x, int axis, std::size_t length, kiln_dft_kind kind)
{
    return detail::made(x, kiln_dft(x.batch(), x.id(), axis, length, kind));
}

inline tensor stft(const tensor &x, const tensor &window, std::size_t length, std::size_t step,
                   kiln_dft_kind kind)
{
    return detail::made(x, kiln_stft(x.batch(), x.id(), window.id(), length, step, kind));
}

inline tensor lerp(const tensor &a, const tensor &b, const tensor &weight)
{
    return detail::made(a, kiln_lerp(a.batch(), a.id(), b.id(), weight.id()));
}

inline tensor slerp(const tensor &a, const tensor &b, const tensor &weight)
{
    return detail::made(a, kiln_slerp(a.batch(), a.id(), b.id(), weight.id()));
}

/** Gradients scaled down where their common norm is larger; empty after an error. `length` receives
 *  that norm. */
inline std::vector<tensor> clip_by_norm(const std::vector<tensor> &gradients, double max_norm,
                                        tensor *length = nullptr)
{
    kiln_batch *batch = detail::batch_of(gradients);
    std::vector<kiln_tensor> clipped(gradients.size());
    tensor found = detail::made(batch, kiln_clip_by_norm(batch, gradients.size(),
                                                         detail::ids(gradients).data(), max_norm,
                                                         clipped.data()));
    std::vector<tensor> all;
    for (std::size_t i = 0; found && i < clipped.size(); i++)
        all.push_back(tensor(batch, clipped[i]));
    if (length)
        *length = found;
    return all;
}

/** `x`, which errors, explanations and traces call by this name from now on. */
inline tensor name(const tensor &x, const std::string &by)
{
    return detail::made(x, kiln_name(x.batch(), x.id(), by.c_str()));
}

inline tensor detach(const tensor &x)
{
    return detail::made(x, kiln_detach(x.batch(), x.id()));
}

/** The derivatives of a loss in its inputs; tensors of none after an error. */
inline std::vector<tensor> grad(const tensor &loss, const std::vector<tensor> &inputs)
{
    std::vector<kiln_tensor> out(inputs.size());
    detail::told(loss.batch(), kiln_grad(loss.batch(), loss.id(), detail::ids(inputs).data(),
                                         inputs.size(), out.data()));
    std::vector<tensor> gradients;
    for (kiln_tensor each : out)
        gradients.emplace_back(loss.batch(), each);
    return gradients;
}

// ---- batches ----

/** Records into a batch of somebody else's. */
class recorder
{
  public:
    explicit recorder(kiln_batch *batch) : batch_(batch)
    {
    }

    kiln_batch *get() const
    {
        return batch_;
    }
    explicit operator bool() const
    {
        return batch_ != nullptr;
    }
    /** The first error, or KILN_OK, and its sentence. */
    kiln_status status() const
    {
        return kiln_batch_status(batch_);
    }
    const char *error() const
    {
        return kiln_batch_error(batch_);
    }

    /** Host memory, which is borrowed until the last run and read by each. */
    tensor upload(kiln_type type, const shape &of, const void *data) const
    {
        return detail::made(batch_, kiln_upload(batch_, type, of.rank(), of.dims(), data));
    }
    /** A vector that has as many elements as the shape. */
    template <class T> tensor upload(const shape &of, const std::vector<T> &data) const
    {
        if (of.rank() <= KILN_MAX_RANK && data.size() != of.count())
            kiln_batch_fail(batch_, KILN_INVALID_ARGUMENT,
                            detail::miscounted("kiln::recorder::upload", data.size(), of).c_str());
        return upload(type_of<T>::value, of, detail::elements(data, of.count()));
    }
    template <class T> tensor upload(const shape &of, std::vector<T> &&data) const = delete;

    /** The content of a buffer before the run. */
    tensor import(const buffer &from) const
    {
        return detail::made(batch_, kiln_import(batch_, from.get()));
    }
    tensor constant(double value, kiln_type type = KILN_F32) const
    {
        return detail::made(batch_, kiln_constant(batch_, type, value));
    }
    tensor fill(const shape &of, double value, kiln_type type = KILN_F32) const
    {
        return detail::made(batch_, kiln_fill(batch_, type, of.rank(), of.dims(), value));
    }
    tensor iota(const shape &of, int axis) const
    {
        return detail::made(batch_, kiln_iota(batch_, of.rank(), of.dims(), axis));
    }
    tensor arange(double start, double stop, double step = 1, kiln_type type = KILN_F32) const
    {
        return detail::made(batch_, kiln_arange(batch_, type, start, stop, step));
    }
    tensor random_key(std::uint64_t seed) const
    {
        return detail::made(batch_, kiln_random_key(batch_, seed));
    }
    /** A key that no earlier run has had; the buffer counts. */
    tensor random_next(const buffer &state) const
    {
        return detail::made(batch_, kiln_random_next(batch_, state.get()));
    }
    tensor random_uniform(const shape &of, const tensor &key) const
    {
        return detail::made(batch_, kiln_random_uniform(batch_, of.rank(), of.dims(), key.id()));
    }
    tensor random_normal(const shape &of, const tensor &key) const
    {
        return detail::made(batch_, kiln_random_normal(batch_, of.rank(), of.dims(), key.id()));
    }
    tensor window(kiln_taper taper, std::size_t n, bool periodic = true) const
    {
        return detail::made(batch_, kiln_window(batch_, taper, n, periodic));
    }
    tensor mel_weights(std::size_t bins, std::size_t length, double rate, double low,
                       double high) const
    {
        return detail::made(batch_, kiln_mel_weights(batch_, bins, length, rate, low, high));
    }

    /** Layers of ONNX' and PyTorch's kinds. `last`, `last_c` receive the state behind them. */
    tensor rnn(const kiln_recurrent &layer, tensor *last = nullptr) const
    {
        kiln_tensor state = {0};
        return with_state(kiln_rnn(batch_, &layer, &state), state, last);
    }
    tensor gru(const kiln_recurrent &layer, tensor *last = nullptr) const
    {
        kiln_tensor state = {0};
        return with_state(kiln_gru(batch_, &layer, &state), state, last);
    }
    tensor lstm(const kiln_recurrent &layer, tensor *last = nullptr, tensor *last_c = nullptr) const
    {
        kiln_tensor state = {0}, cell = {0};
        tensor y = with_state(kiln_lstm(batch_, &layer, &state, &cell), state, last);
        if (last_c)
            *last_c = tensor(batch_, cell);
        return y;
    }

    /** What is recorded from now on is called so, where kiln::name() says nothing else; "" ends
     *  that. */
    kiln_status name_calls(const std::string &by) const
    {
        return detail::told(batch_, kiln_name_calls(batch_, by.c_str()));
    }

  private:
    tensor with_state(kiln_tensor y, kiln_tensor state, tensor *last) const
    {
        if (last)
            *last = tensor(batch_, state);
        return detail::made(batch_, y);
    }

  protected:
    kiln_batch *batch_;
};

/** Kernels of the program's own: the outputs of one launch; tensors of none after an error. */
inline std::vector<tensor> custom(const recorder &b, const kiln_custom_kernel &kernel,
                                  const std::vector<tensor> &inputs)
{
    std::vector<kiln_tensor> out(KILN_CUSTOM_OUTPUTS);
    if (inputs.size() != kernel.input_count)
        kiln_batch_fail(
            b.get(), KILN_INVALID_ARGUMENT,
            detail::miscounted("kiln::custom", inputs.size(), "inputs", kernel.input_count)
                .c_str());
    detail::told(b.get(), kiln_custom(b.get(), &kernel, detail::ids(inputs).data(), out.data()));
    std::vector<tensor> outputs;
    for (size_t k = 0; k < kernel.output_count && k < out.size(); k++)
        outputs.emplace_back(b.get(), out[k]);
    return outputs;
}

/** An expression of elements, `elementwise("x * y + z", {x, y, z})`: operands in the order in which
 *  their names first stand in the text, or in that of `names`, with blanks between them. */
inline tensor elementwise(const char *text, const std::vector<tensor> &operands,
                          const char *names = nullptr)
{
    kiln_batch *batch = detail::batch_of(operands);
    return detail::made(
        batch, kiln_elementwise(batch, text, names, operands.size(), detail::ids(operands).data()));
}

/** The names of such a text, with a blank between two. */
inline std::string elementwise_names(const char *text)
{
    char *names = nullptr;
    detail::told(kiln_elementwise_names(text, &names));
    return detail::memory<char>(names).text();
}

/** A step's number, an i32, a value of the state at its start, and what belongs to it of xs: what a
 *  step of kiln::loop(options) is recorded with. */
inline tensor loop_step(const recorder &b)
{
    return tensor(b.get(), kiln_loop_step(b.get()));
}
inline tensor loop_state(const recorder &b, const tensor &initial)
{
    return tensor(b.get(), kiln_loop_state(b.get(), initial.id()));
}
inline tensor loop_element(const recorder &b, const tensor &xs)
{
    return tensor(b.get(), kiln_loop_element(b.get(), xs.id()));
}

namespace detail
{

inline std::vector<tensor> looped(const recorder &b, kiln_loop_options given,
                                  const std::vector<tensor> &states,
                                  const std::vector<tensor> &next,
                                  const std::vector<tensor> &elements,
                                  const std::vector<tensor> &outputs)
{
    const std::vector<kiln_tensor> all[] = {ids(states), ids(next), ids(elements), ids(outputs)};
    std::vector<kiln_tensor> last(states.size()), stacked(outputs.size());
    std::vector<tensor> results;
    if (next.size() != states.size())
        kiln_batch_fail(
            b.get(), KILN_INVALID_ARGUMENT,
            miscounted("kiln::loop", next.size(), "states after a step", states.size()).c_str());
    given.state_count = states.size();
    given.states = all[0].data();
    given.next = all[1].data();
    given.element_count = elements.size();
    given.elements = all[2].data();
    given.output_count = outputs.size();
    given.outputs = all[3].data();
    told(b.get(), kiln_loop(b.get(), &given, last.data(), stacked.data()));
    for (const kiln_tensor &one : last)
        results.emplace_back(b.get(), one);
    for (const kiln_tensor &one : stacked)
        results.emplace_back(b.get(), one);
    return results;
}

} // namespace detail

/** kiln_loop(): `step(number, state)` records a step and gives the state behind it, as many
 *  tensors; it is called once. The state behind all steps. */
template <class Step>
std::vector<tensor> loop(const recorder &b, size_t steps, const std::vector<tensor> &initial,
                         Step &&step)
{
    loop_options options;
    const tensor number = loop_step(b);
    std::vector<tensor> states;
    for (const tensor &one : initial)
        states.push_back(loop_state(b, one));
    options.steps = steps;
    options.step = number.id();
    return detail::looped(b, options, states, step(number, states), {}, {});
}

/** The same until the mask `until(state)` holds, and `steps` steps at most. */
template <class Step, class Until>
std::vector<tensor> loop(const recorder &b, size_t steps, const std::vector<tensor> &initial,
                         Step &&step, Until &&until)
{
    loop_options options;
    const tensor number = loop_step(b);
    std::vector<tensor> states;
    for (const tensor &one : initial)
        states.push_back(loop_state(b, one));
    options.steps = steps;
    options.step = number.id();
    options.until = until(states).id();
    return detail::looped(b, options, states, step(number, states), {}, {});
}

/** As many steps as each of xs has along its first dimension: `step(state, x)` gives a pair, the
 *  state behind the step and what it leaves. The state behind all steps, then what they have left,
 *  stacked. `reverse`: from the last x to the first. */
template <class Step>
std::vector<tensor> scan(const recorder &b, size_t steps, const std::vector<tensor> &initial,
                         const std::vector<tensor> &xs, Step &&step, bool reverse = false)
{
    loop_options options;
    std::vector<tensor> states, elements;
    for (const tensor &one : initial)
        states.push_back(loop_state(b, one));
    for (const tensor &one : xs)
        elements.push_back(loop_element(b, one));
    options.steps = steps;
    options.reverse = reverse;
    const std::pair<std::vector<tensor>, std::vector<tensor>> given = step(states, elements);
    return detail::looped(b, options, states, given.first, elements, given.second);
}

/** The completion of one submitted batch. */
class event : public detail::handle<kiln_event, kiln_event_release>
{
  public:
    event() = default;
    explicit event(kiln_event *object) : handle(object)
    {
    }
    KILN_NODISCARD kiln_status wait() const
    {
        return detail::told(kiln_event_wait(object_));
    }
    /** KILN_NOT_READY before it has completed. */
    KILN_NODISCARD kiln_status poll() const
    {
        return detail::told(kiln_event_poll(object_));
    }
};

/** Operations recorded and run together. */
class batch : public recorder
{
  public:
    /** Empty after an error. */
    explicit batch(const context &of) : recorder(kiln_batch_create(of.get()))
    {
        if (!batch_)
            detail::told(KILN_INVALID_ARGUMENT);
    }
    batch(batch &&other) noexcept : recorder(std::exchange(other.batch_, nullptr))
    {
    }
    batch &operator=(batch &&other) noexcept
    {
        if (this != &other)
            kiln_batch_release(std::exchange(batch_, std::exchange(other.batch_, nullptr)));
        return *this;
    }
    batch(const batch &) = delete;
    batch &operator=(const batch &) = delete;
    ~batch()
    {
        kiln_batch_release(batch_);
    }

    /** Run it and wait for its results. */
    KILN_NODISCARD kiln_status execute() const
    {
        return detail::told(batch_, kiln_batch_execute(batch_));
    }
    /** Run it and return at once. Empty after an error. */
    KILN_NODISCARD event submit() const
    {
        kiln_event *made = nullptr;
        detail::told(batch_, kiln_batch_submit(batch_, &made));
        return event(made);
    }
    KILN_NODISCARD kiln_status prepare(unsigned threads = 0) const
    {
        return detail::told(batch_, kiln_batch_prepare(batch_, threads));
    }
    /** Forget everything recorded, errors too. */
    KILN_NODISCARD kiln_status reset() const
    {
        return detail::told(kiln_batch_reset(batch_));
    }
    /** Take an upload elsewhere in later runs. */
    kiln_status rebind_upload(const tensor &x, const void *data) const
    {
        return detail::told(batch_, kiln_rebind_upload(batch_, x.id(), data));
    }
    /** How many results were asked for: the number of the next read. */
    std::size_t read_count() const
    {
        return kiln_batch_read_count(batch_);
    }
    /** Leave the result of a read, numbered from 0 in their order, elsewhere in later runs. */
    kiln_status rebind_read(std::size_t read, void *data, std::size_t bytes) const
    {
        return detail::told(batch_, kiln_rebind_read(batch_, read, data, bytes));
    }
    /** The same, in a vector of its element type and size. */
    template <class T> kiln_status rebind_read(std::size_t read, std::vector<T> &into) const
    {
        return rebind_read(read, into.data(), into.size() * sizeof(T));
    }
    /** The same bits of a row in batches of any number of rows. */
    KILN_NODISCARD kiln_status set_batch_invariant() const
    {
        return detail::told(kiln_batch_set_batch_invariant(batch_));
    }
    KILN_NODISCARD kiln_status set_independent() const
    {
        return detail::told(kiln_batch_set_independent(batch_));
    }
    KILN_NODISCARD kiln_status set_precision(kiln_precision precision) const
    {
        return detail::told(kiln_batch_set_precision(batch_, precision));
    }
    /** Launches, transfers and memory, known before it runs; zeros after an error. */
    kiln_batch_cost cost() const
    {
        kiln_batch_cost found = {};
        detail::told(batch_, kiln_batch_get_cost(batch_, &found));
        return found;
    }
    /** What becomes of it, in text; empty after an error. */
    std::string explain() const
    {
        char *text = nullptr;
        detail::told(batch_, kiln_batch_explain(batch_, &text));
        return detail::memory<char>(text).text();
    }
};

// ---- training ----

/** Parameters with what their method remembers about them. */
class optimizer : public detail::handle<kiln_optimizer, kiln_optimizer_release>
{
  public:
    /** It holds the parameters. Empty after an error. */
    optimizer(const context &of, const kiln_optimizer_options &options,
              std::initializer_list<std::reference_wrapper<const buffer>> parameters)
        : count_(parameters.size())
    {
        std::vector<kiln_buffer *> all;
        for (const buffer &each : parameters)
            all.push_back(each.get());
        detail::told(kiln_optimizer_create(of.get(), &options, all.size(), all.data(), &object_));
    }
    /** Record a step: gradients[i] is of parameter i; there are as many. */
    kiln_status step(const recorder &in, const std::vector<tensor> &gradients) const
    {
        std::vector<kiln_tensor> given = detail::ids(gradients);
        if (given.size() != count_)
            return detail::told(
                in.get(), kiln_batch_fail(in.get(), KILN_INVALID_ARGUMENT,
                                          detail::miscounted("kiln::optimizer::step", given.size(),
                                                             "gradients", count_)
                                              .c_str()));
        return detail::told(in.get(), kiln_optimizer_step(in.get(), object_, given.data()));
    }
    KILN_NODISCARD kiln_status set_learning_rate(double rate) const
    {
        return detail::told(kiln_optimizer_set_learning_rate(object_, rate));
    }
    /** Handles of the buffers of its own state (kiln_optimizer_state()), to save and load. */
    std::vector<buffer> state() const
    {
        std::size_t count = 0;
        kiln_buffer *const *all = kiln_optimizer_state(object_, &count);
        std::vector<buffer> buffers(count); /* no memory can be wanting behind a retain */
        for (std::size_t i = 0; i < count; i++) {
            kiln_buffer_retain(all[i]);
            buffers[i].reset(all[i]);
        }
        return buffers;
    }
    /** Names for these in a file, made of the parameters': as many, in their order; none at all
     *  after an error. */
    std::vector<std::string> state_names(const std::vector<const char *> &parameters) const
    {
        std::vector<std::string> names;
        const char **all = nullptr;
        std::size_t count = 0;
        kiln_status answer = parameters.size() == count_
                                 ? kiln_optimizer_state_names(object_, parameters.data(), &all)
                                 : kiln_error_set(KILN_INVALID_ARGUMENT,
                                                  "state_names: not a name for each parameter");
        if (detail::told(answer))
            return names;
        detail::memory<const char *> kept(all);
        kiln_optimizer_state(object_, &count);
        names.assign(all, all + count);
        return names;
    }

  private:
    std::size_t count_;
};

/** What is trained on several contexts at once: `record` records in `in` the loss of the share of
 *  context number `context` and gives its derivatives; `update` records how the weights change by
 *  their averages. See kiln_parallel_recorder and kiln_parallel_updater. */
struct training {
    std::size_t gradients; /* 1 or more */
    std::function<std::vector<tensor>(const recorder &in, std::size_t context)> record;
    std::function<void(const recorder &in, std::size_t context,
                       const std::vector<tensor> &gradients)>
        update;
    std::vector<double> shares;            /* of the contexts in the averages; none: all alike */
    const kiln_reducer *reducer = nullptr; /* what adds up with other processes */
    /* Where processes keep parts of an optimiser's state (kiln_training::shards): of each context
     * after the other what gradients are derivatives by, and buffer::shard() of these. */
    std::vector<kiln_buffer *> weights{}, shards{};
};

/** Data-parallel training. */
class parallel : public detail::handle<kiln_parallel, kiln_parallel_release>
{
  public:
    /** It holds the contexts, and has done with `of` when it is there. Empty after an error; what
     *  a function of `of` throws comes out here. */
    parallel(std::initializer_list<std::reference_wrapper<const context>> contexts,
             const training &of)
    {
        std::vector<kiln_context *> all = detail::handles(contexts);
        kiln_training made;
        kiln_training_init(&made);
        made.record = record;
        made.update = update;
        made.user = const_cast<training *>(&of);
        made.gradient_count = of.gradients;
        made.shares = of.shares.empty() ? nullptr : of.shares.data();
        made.reducer = of.reducer;
        made.weights = of.weights.empty() ? nullptr : of.weights.data();
        made.shards = of.shards.empty() ? nullptr : of.shards.data();
        const std::size_t divided = all.size() * of.gradients;
        if ((made.weights && of.weights.size() != divided) ||
            (made.shards && of.shards.size() != divided))
            detail::told(kiln_error_set(
                KILN_INVALID_ARGUMENT,
                "kiln::parallel: there are not weights and a shard for each gradient"));
        else if (of.shares.empty() || of.shares.size() == all.size())
            detail::calling(
                [&] { return kiln_parallel_create(all.data(), all.size(), &made, &object_); });
        else
            detail::told(kiln_error_set(KILN_INVALID_ARGUMENT,
                                        "kiln::parallel: there is not a share for each context"));
    }
    /** Make one step on all contexts, and wait for it. */
    KILN_NODISCARD kiln_status step() const
    {
        return detail::told(kiln_parallel_step(object_));
    }

  private:
    static kiln_status record(kiln_batch *batch, std::size_t context, kiln_tensor *gradients,
                              void *user)
    {
        const training &of = *static_cast<const training *>(user);
        return detail::called(batch, [&] {
            std::vector<tensor> given = of.record(recorder(batch), context);
            if (given.size() != of.gradients)
                kiln_batch_fail(batch, KILN_INVALID_ARGUMENT,
                                detail::miscounted("kiln::training::record", given.size(),
                                                   "gradients", of.gradients)
                                    .c_str());
            for (std::size_t i = 0; i < of.gradients && i < given.size(); i++)
                gradients[i] = given[i].id();
        });
    }

    static kiln_status update(kiln_batch *batch, std::size_t context, const kiln_tensor *gradients,
                              void *user)
    {
        const training &of = *static_cast<const training *>(user);
        return detail::called(batch, [&] {
            std::vector<tensor> averages;
            for (std::size_t i = 0; i < of.gradients; i++)
                averages.emplace_back(batch, gradients[i]);
            of.update(recorder(batch), context, averages);
        });
    }
};

// ---- files ----

/** Write buffers under their names (kiln_save()). */
KILN_NODISCARD inline kiln_status
save(const std::string &path,
     std::initializer_list<std::pair<const char *, std::reference_wrapper<const buffer>>> buffers)
{
    std::vector<const char *> names;
    std::vector<kiln_buffer *> all;
    for (const auto &each : buffers) {
        names.push_back(each.first);
        all.push_back(each.second.get().get());
    }
    return detail::told(kiln_save(path.c_str(), all.size(), names.data(), all.data()));
}

/** Buffers of tensors in a file (kiln_load()); none at all after an error. */
inline std::vector<buffer> load(const context &of, const std::string &path,
                                const std::vector<const char *> &names)
{
    std::vector<kiln_buffer *> all(names.size());
    std::vector<buffer> buffers(names.size());
    if (detail::told(kiln_load(of.get(), path.c_str(), all.size(), names.data(), all.data())))
        buffers.clear();
    for (std::size_t i = 0; i < buffers.size(); i++)
        buffers[i].reset(all[i]);
    return buffers;
}

// ---- executors ----

/** Rows that go in, and where results go: memory that is borrowed until the request completes. */
template <class T> kiln_input input(const std::vector<T> &rows)
{
    return kiln_input{rows.data(), rows.size() * sizeof(T), type_of<T>::value};
}

template <class T> kiln_output output(std::vector<T> &rows)
{
    return kiln_output{rows.data(), rows.size() * sizeof(T), type_of<T>::value};
}

/** One row of an input. */
inline kiln_row row(kiln_type type, const shape &of)
{
    kiln_row made = {};
    made.type = type;
    made.rank = of.rank();
    for (std::size_t i = 0; i < of.rank() && i + 1 < KILN_MAX_RANK; i++)
        made.dims[i] = of[i];
    return made;
}

/** What an executor computes from rows: `record` gets the inputs of so many rows in context number
 *  `context`, and gives the outputs. */
struct model {
    std::vector<kiln_row> inputs;
    std::size_t outputs;
    std::function<std::vector<tensor>(const recorder &in, const std::vector<tensor> &inputs,
                                      std::size_t context, std::size_t rows)>
        record;
    kiln_precision precision = KILN_PRECISION_DEFAULT;
};

namespace detail
{

inline void record_outputs(kiln_batch *batch, std::size_t context, std::size_t rows,
                           const kiln_tensor *inputs, kiln_tensor *outputs, const model &of)
{
    std::size_t count = of.inputs.size();
    std::vector<tensor> all;
    for (const kiln_row &each : of.inputs)
        if (each.sequence && count == of.inputs.size())
            count += 2; /* lengths and a mask */
    for (std::size_t i = 0; i < count; i++)
        all.emplace_back(batch, inputs[i]);
    std::vector<tensor> results = of.record(recorder(batch), all, context, rows);
    if (results.size() != of.outputs)
        kiln_batch_fail(
            batch, KILN_INVALID_ARGUMENT,
            miscounted("kiln::model::record", results.size(), "outputs", of.outputs).c_str());
    for (std::size_t i = 0; i < of.outputs && i < results.size(); i++)
        outputs[i] = results[i].id();
}

inline kiln_status record(kiln_batch *batch, std::size_t context, std::size_t rows,
                          const kiln_tensor *inputs, kiln_tensor *outputs, void *user)
{
    const model &of = *static_cast<const model *>(user);
    return called(batch, [&] { record_outputs(batch, context, rows, inputs, outputs, of); });
}

/** As C has it; it borrows all of `of`. */
inline kiln_model described(const model &of)
{
    kiln_model made;
    kiln_model_init(&made);
    made.record = record;
    made.user = const_cast<model *>(&of);
    made.input_count = of.inputs.size();
    made.inputs = of.inputs.data();
    made.output_count = of.outputs;
    made.precision = of.precision;
    return made;
}

} // namespace detail

/** A model that is ready-made, to be given to an executor, which has done with it when it is
 *  there. */
using ready_model = detail::memory<kiln_model>;

/** lerp() and slerp() of rows: a, b, and one weight for each row. Empty after an error. */
inline ready_model lerp_model(const shape &row)
{
    kiln_model *made = nullptr;
    detail::told(kiln_model_create_lerp(row.rank(), row.dims(), &made));
    return ready_model(made);
}

inline ready_model slerp_model(const shape &row)
{
    kiln_model *made = nullptr;
    detail::told(kiln_model_create_slerp(row.rank(), row.dims(), &made));
    return ready_model(made);
}

namespace detail
{

inline ready_model gradient_model(const kiln_model *of, const std::vector<std::size_t> &inputs)
{
    kiln_model *made = nullptr;
    told(kiln_model_create_gradient(of, inputs.size(), inputs.data(), &made));
    return ready_model(made);
}

} // namespace detail

/** What `of` computes, and for each row the gradients of the sum of output 0 in some of its inputs,
 *  by their numbers. `of` is to stay where it is until an executor of this is there. Empty after an
 *  error. */
inline ready_model gradient_model(const model &of, const std::vector<std::size_t> &inputs)
{
    kiln_model described = detail::described(of);
    return detail::gradient_model(&described, inputs);
}

inline ready_model gradient_model(const ready_model &of, const std::vector<std::size_t> &inputs)
{
    return detail::gradient_model(of.get(), inputs);
}

/** The rows of the batches that suit a model, for executor_options::max_batch: as many as fit, and
 *  where `max_run` says how long one may run, as many as are quickest. 0 after an error. */
inline std::size_t choose_batch(const context &on, const model &of, std::size_t max_batch = 0,
                                std::uint64_t max_bytes = 0, std::chrono::microseconds max_run = {})
{
    std::size_t rows = 0;
    kiln_model described = detail::described(of);
    if (max_run.count() < 0)
        detail::told(
            kiln_error_set(KILN_INVALID_ARGUMENT, "kiln::choose_batch: max_run is below 0"));
    else
        detail::calling([&] {
            return kiln_model_choose_batch(on.get(), &described, max_batch, max_bytes,
                                           detail::microseconds(max_run), &rows);
        });
    return rows;
}

/** The end of one request. */
class future : public detail::handle<kiln_future, kiln_future_release>
{
  public:
    future() = default;
    explicit future(kiln_future *object) : handle(object)
    {
    }
    KILN_NODISCARD kiln_status wait() const
    {
        return detail::told(kiln_future_wait(object_));
    }
    /** KILN_NOT_READY if it has not completed by then; a time below 0 has passed. */
    template <class Rep, class Period>
    KILN_NODISCARD kiln_status wait_for(const std::chrono::duration<Rep, Period> &most) const
    {
        return detail::told(kiln_future_wait_for(object_, detail::microseconds(most)));
    }
    bool ready() const
    {
        return kiln_future_poll(object_) != KILN_NOT_READY;
    }
    KILN_NODISCARD kiln_status cancel() const
    {
        return detail::told(kiln_future_cancel(object_));
    }
};

/** Gathers requests of many threads into batches. */
class executor : public detail::handle<kiln_executor, kiln_executor_release>
{
  public:
    using contexts = std::initializer_list<std::reference_wrapper<const context>>;

    /** Empty after an error; what the model's function throws comes out here. */
    executor(contexts on, const model &of,
             const kiln_executor_options &options = executor_options())
        : executor(on, detail::described(of), options)
    {
    }
    executor(contexts on, const ready_model &of,
             const kiln_executor_options &options = executor_options())
        : executor(on, of ? *of.get() : kiln_model(), options)
    {
    }
    /** Of a model as C has it. */
    executor(contexts on, const kiln_model &of,
             const kiln_executor_options &options = executor_options())
        : inputs_(of.input_count), outputs_(of.output_count)
    {
        std::vector<kiln_context *> all = detail::handles(on);
        detail::calling(
            [&] { return kiln_executor_create(all.data(), all.size(), &of, &options, &object_); });
    }

    /** Empty after an error. */
    KILN_NODISCARD future submit(std::initializer_list<kiln_input> inputs,
                                 std::initializer_list<kiln_output> outputs, std::size_t rows,
                                 const kiln_request_options &options = request_options()) const
    {
        kiln_future *made = nullptr;
        if (!complete(inputs.size(), outputs.size()))
            return future();
        detail::told(
            kiln_executor_submit(object_, inputs.begin(), outputs.begin(), rows, &options, &made));
        return future(made);
    }
    /** Any number of rows now, spread over all contexts. */
    KILN_NODISCARD kiln_status run(std::initializer_list<kiln_input> inputs,
                                   std::initializer_list<kiln_output> outputs, std::size_t rows,
                                   const kiln_request_options &options = request_options()) const
    {
        if (!complete(inputs.size(), outputs.size()))
            return KILN_INVALID_ARGUMENT;
        return detail::told(
            kiln_executor_run(object_, inputs.begin(), outputs.begin(), rows, &options));
    }
    /** Zeros after an error. */
    kiln_executor_stats stats() const
    {
        kiln_executor_stats found = {};
        detail::told(kiln_executor_get_stats(object_, &found));
        return found;
    }
    /** Its metrics as text; empty after an error. */
    std::string metrics(kiln_metrics_format format = KILN_METRICS_JSON) const
    {
        char *text = nullptr;
        detail::told(kiln_executor_metrics(object_, format, &text));
        return detail::memory<char>(text).text();
    }
    KILN_NODISCARD kiln_status shutdown(kiln_shutdown how = KILN_SHUTDOWN_DRAIN) const
    {
        return detail::told(kiln_executor_shutdown(object_, how));
    }

  private:
    /* C takes the model's numbers of them for granted. */
    bool complete(std::size_t inputs, std::size_t outputs) const
    {
        return !object_ || (inputs == inputs_ && outputs == outputs_) ||
               !detail::told(kiln_error_set(
                   KILN_INVALID_ARGUMENT,
                   "kiln::executor: a request has not the inputs and outputs of the model"));
    }

    std::size_t inputs_, outputs_;
};

} // namespace kiln

#endif
