/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  libkiln-onnx in C++17: models in ONNX files, above kiln/onnx.h, in the style of kiln/kiln.hpp.
 *
 *  @code
 *  kiln::onnx_model model(context, "model.onnx");
 *  std::vector<float> data(512), found;
 *  std::vector<kiln::array> results = model.run({kiln::borrow({4, 128}, data)});
 *  if (!results.empty() && !results[0].read(found))
 *      ...
 *  @endcode */
#ifndef KILN_ONNX_HPP
#define KILN_ONNX_HPP

#include <cstring>

#include <kiln/kiln.hpp>
#include <kiln/onnx.h>

namespace kiln
{

using model_options = detail::options<kiln_model_options, kiln_model_options_init>;

/** An array of a vector's elements, which it borrows. A vector that has not as many as the shape
 *  says comes without data, which calls refuse. */
template <class T> kiln_array borrow(const shape &of, const std::vector<T> &data)
{
    kiln_array made = {};
    made.type = type_of<T>::value;
    made.rank = of.rank();
    for (std::size_t i = 0; i < of.rank() && i < KILN_MAX_RANK; i++)
        made.dims[i] = of[i];
    made.data = const_cast<void *>(detail::elements(data, of.count()));
    return made;
}

namespace detail
{

inline shape shape_of(const kiln_array &array)
{
    return shape(array.dims, array.rank);
}

/** All elements, into a vector of their type, which gets its size. */
template <class T> kiln_status copy(const kiln_array &from, std::vector<T> &into)
{
    if (!holds<T>(from.type, 0))
        return told(kiln_error_set(KILN_INVALID_ARGUMENT,
                                   "kiln::array: the vector has not the array's type"));
    into.resize(shape_of(from).count());
    if (!into.empty())
        std::memcpy(into.data(), from.data, into.size() * sizeof(T));
    return KILN_OK;
}

} // namespace detail

/** A result in host memory of its own. */
class array
{
  public:
    array() = default;
    /** Takes the data over, which kiln_free() is for. */
    explicit array(const kiln_array &of) : array_(of), data_(of.data)
    {
    }
    kiln_type type() const
    {
        return array_.type;
    }
    kiln::shape shape() const
    {
        return detail::shape_of(array_);
    }
    const void *data() const
    {
        return data_.get();
    }
    /** As C takes it; it stays this one's. */
    const kiln_array &get() const
    {
        return array_;
    }
    template <class T> KILN_NODISCARD kiln_status read(std::vector<T> &into) const
    {
        return detail::copy(array_, into);
    }

  private:
    kiln_array array_ = {};
    detail::handle<void, kiln_free> data_;
};

/** A batch of a model for inputs of certain shapes, on lease to one thread. It is to end before the
 *  model does. */
class model_lease : public detail::handle<kiln_model_lease, kiln_model_batch_return>
{
  public:
    using handle::handle;

    /** Its batch, with its error. */
    recorder batch() const
    {
        return recorder(object_->batch);
    }
    /** Input and output i: types, shapes, and memory that runs read and write. */
    const kiln_array &input(std::size_t i) const
    {
        return object_->inputs[i];
    }
    const kiln_array &output(std::size_t i) const
    {
        return object_->outputs[i];
    }
    /** All of input i, of its type and size. */
    template <class T>
    KILN_NODISCARD kiln_status write(std::size_t i, const std::vector<T> &content) const
    {
        const kiln_array &into = input(i);
        if (!into.data || !detail::holds<T>(into.type, 0) ||
            content.size() != detail::shape_of(into).count())
            return detail::told(
                kiln_error_set(KILN_INVALID_ARGUMENT,
                               "kiln::model_lease: the content has not the input's type and size"));
        if (!content.empty())
            std::memcpy(into.data, content.data(), content.size() * sizeof(T));
        return KILN_OK;
    }
    /** All of output i, after a run. */
    template <class T> KILN_NODISCARD kiln_status read(std::size_t i, std::vector<T> &into) const
    {
        return detail::copy(output(i), into);
    }
    /** Have later runs write output i there, of its type and size, instead of its own memory. */
    template <class T>
    KILN_NODISCARD kiln_status rebind_read(std::size_t i, std::vector<T> &into) const
    {
        if (!detail::holds<T>(output(i).type, 0))
            return detail::told(kiln_error_set(
                KILN_TYPE_MISMATCH, "kiln::model_lease: the vector has not the output's type"));
        return detail::told(object_->batch, kiln_rebind_read(object_->batch, i, into.data(),
                                                             into.size() * sizeof(T)));
    }
    KILN_NODISCARD kiln_status execute() const
    {
        return detail::told(object_->batch, kiln_batch_execute(object_->batch));
    }
    /** Empty after an error. */
    KILN_NODISCARD event submit() const
    {
        kiln_event *made = nullptr;
        detail::told(object_->batch, kiln_batch_submit(object_->batch, &made));
        return event(made);
    }
};

/** A model that has been read, with its weights on a device. */
class onnx_model : public detail::handle<kiln_onnx_model, kiln_model_release>
{
  public:
    onnx_model() = default;
    /** Of a file. Empty after an error. */
    onnx_model(const context &on, const std::string &path,
               const kiln_model_options &options = model_options())
    {
        detail::told(kiln_model_load(on.get(), path.c_str(), &options, &object_));
    }
    /** Of memory, which is not needed afterwards. Empty after an error. */
    onnx_model(const context &on, const void *data, std::size_t bytes,
               const kiln_model_options &options = model_options())
    {
        detail::told(kiln_model_load_memory(on.get(), data, bytes, &options, &object_));
    }

    /** What it takes and gives; the texts are the model's. */
    std::vector<kiln_model_value> inputs() const
    {
        const kiln_model_value *all = nullptr;
        std::size_t count = kiln_model_inputs(object_, &all);
        return std::vector<kiln_model_value>(all, all + count);
    }
    std::vector<kiln_model_value> outputs() const
    {
        const kiln_model_value *all = nullptr;
        std::size_t count = kiln_model_outputs(object_, &all);
        return std::vector<kiln_model_value>(all, all + count);
    }
    /** What reading the file changed, a sentence a line. */
    std::string notes() const
    {
        return object_ ? kiln_model_notes(object_) : "";
    }

    /** Record it: an input for each, an output for each. `contents`, where there are any, are of
     *  the inputs, too (kiln_model_record()). None at all after an error. */
    std::vector<tensor> record(const recorder &in, const std::vector<tensor> &inputs,
                               const std::vector<kiln_array> &contents = {}) const
    {
        std::vector<tensor> found;
        if (!complete(inputs.size()) || (!contents.empty() && !complete(contents.size())))
            return found;
        std::vector<kiln_tensor> given = detail::ids(inputs), made(outputs().size() + 1);
        if (detail::told(in.get(), kiln_model_record(object_, in.get(), given.data(),
                                                     contents.empty() ? nullptr : contents.data(),
                                                     made.data())))
            return found;
        for (std::size_t i = 0; i + 1 < made.size(); i++)
            found.emplace_back(in.get(), made[i]);
        return found;
    }
    /** A batch for inputs of these types and shapes; data counts where shapes depend on it. Empty
     *  after an error. */
    KILN_NODISCARD model_lease lease(const std::vector<kiln_array> &inputs) const
    {
        kiln_model_lease *made = nullptr;
        if (complete(inputs.size()))
            detail::told(kiln_model_batch(object_, inputs.data(), &made));
        return model_lease(made);
    }
    /** Run it once: an array for each output; none at all after an error. */
    std::vector<array> run(const std::vector<kiln_array> &inputs) const
    {
        std::vector<kiln_array> made(outputs().size() + 1);
        std::vector<array> found;
        found.reserve(made.size());
        if (!complete(inputs.size()) ||
            detail::told(kiln_model_run(object_, inputs.data(), made.data())))
            return found;
        for (std::size_t i = 0; i + 1 < made.size(); i++)
            found.emplace_back(made[i]);
        return found;
    }

  private:
    /* C takes the model's numbers of them for granted. */
    bool complete(std::size_t n) const
    {
        return !object_ || n == kiln_model_inputs(object_, nullptr) ||
               !detail::told(kiln_error_set(KILN_INVALID_ARGUMENT,
                                            "kiln::onnx_model: not an array for each input"));
    }
};

/** All operators that models may use. */
inline std::vector<kiln_model_operator> model_operators()
{
    std::vector<kiln_model_operator> all;
    kiln_model_operator each = {};
    while (!detail::told(kiln_model_get_operator(all.size(), &each)) && each.name)
        all.push_back(each);
    return all;
}

} // namespace kiln

#endif
