/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  libkiln-lm in C++17: language models in files, above kiln/lm.h, in the style of
 *  kiln/kiln.hpp. Batchers are C's, which takes `model.get()`.
 *
 *  @code
 *  kiln::language_model model(context, "model.gguf");
 *  kiln::language_session session(model);
 *  session.rewrite(model.chat_tokens({{"user", "Why is the sky blue?"}}));
 *  for (std::int32_t token; !session.next(token) && !model.is_end(token);)
 *      std::cout << model.token_text(token);
 *  @endcode */
#ifndef KILN_LM_HPP
#define KILN_LM_HPP

#include <string_view>

#include <kiln/kiln.hpp>
#include <kiln/lm.h>

namespace kiln
{

using language_options = detail::options<kiln_lm_options, kiln_lm_options_init>;
using session_options = detail::options<kiln_lm_session_options, kiln_lm_session_options_init>;
using chat_options = detail::options<kiln_lm_chat_options, kiln_lm_chat_options_init>;

/** Part of a conversation. */
struct message {
    std::string role, content;
};

/** A model in a GGUF file, or in a folder that kiln_lm_load() takes, its weights on the device. */
class language_model : public detail::handle<kiln_lm, kiln_lm_release>
{
  public:
    language_model() = default;
    /** Empty after an error. */
    language_model(const context &on, const std::string &path,
                   const kiln_lm_options &options = language_options())
    {
        detail::told(kiln_lm_load(on.get(), path.c_str(), &options, &object_));
    }

    /** What the file says; texts are the model's. */
    KILN_NODISCARD kiln_status get_info(kiln_lm_info &into) const
    {
        return detail::told(kiln_lm_get_info(object_, &into));
    }
    /** The tokens of a text; `reading` is of kiln_lm_reading. None after an error. */
    std::vector<std::int32_t> tokenize(std::string_view text, int reading = KILN_LM_BEGIN) const
    {
        std::int32_t *tokens;
        std::size_t count = 0;
        detail::told(kiln_lm_tokenize(object_, text.data(), text.size(), reading, &tokens, &count));
        return taken(tokens, count);
    }
    /** The bytes of a token, which are the model's. */
    std::string_view token_text(std::int32_t token) const
    {
        std::size_t bytes;
        const char *text = kiln_lm_token_text(object_, token, &bytes);
        return std::string_view(text, bytes);
    }
    bool is_end(std::int32_t token) const
    {
        return kiln_lm_is_end(object_, token) != 0;
    }
    /** The vectors of texts, one behind the other, of length 1. None after an error. */
    std::vector<float> embed(const std::vector<std::string> &texts) const
    {
        kiln_lm_info info{};
        if (get_info(info))
            return {};
        std::vector<const char *> all;
        for (const std::string &text : texts)
            all.push_back(text.c_str());
        std::vector<float> vectors(all.size() * info.width);
        if (detail::told(
                kiln_lm_embed(object_, all.data(), all.size(), vectors.data(), vectors.size())))
            vectors.clear();
        return vectors;
    }
    /** The tokens of a conversation, up to where the answer begins. None after an error. */
    std::vector<std::int32_t>
    chat_tokens(const std::vector<message> &messages,
                const kiln_lm_chat_options &options = chat_options()) const
    {
        const std::vector<kiln_lm_message> all = pointers(messages);
        std::int32_t *tokens;
        std::size_t count = 0;
        detail::told(
            kiln_lm_chat_tokens(object_, all.data(), all.size(), &options, &tokens, &count));
        return taken(tokens, count);
    }
    /** Its text. Empty after an error. */
    std::string chat_text(const std::vector<message> &messages,
                          const kiln_lm_chat_options &options = chat_options()) const
    {
        const std::vector<kiln_lm_message> all = pointers(messages);
        char *text;
        detail::told(kiln_lm_chat_text(object_, all.data(), all.size(), &options, &text));
        return detail::memory<char>(text).text();
    }

  private:
    static std::vector<kiln_lm_message> pointers(const std::vector<message> &messages)
    {
        std::vector<kiln_lm_message> all;
        for (const message &one : messages)
            all.push_back({one.role.c_str(), one.content.c_str()});
        return all;
    }
    static std::vector<std::int32_t> taken(std::int32_t *tokens, std::size_t count)
    {
        detail::memory<std::int32_t> owner(tokens);
        return tokens ? std::vector<std::int32_t>(tokens, tokens + count)
                      : std::vector<std::int32_t>();
    }
};

/** A text in the making. */
class language_session : public detail::handle<kiln_lm_session, kiln_lm_session_release>
{
  public:
    language_session() = default;
    /** Empty after an error. It holds the model. */
    explicit language_session(const language_model &model,
                              const kiln_lm_session_options &options = session_options())
    {
        detail::told(kiln_lm_session_create(model.get(), &options, &object_));
    }

    KILN_NODISCARD kiln_status feed(const std::vector<std::int32_t> &tokens) const
    {
        return detail::told(kiln_lm_feed(object_, tokens.data(), tokens.size()));
    }
    /** Make these tokens the text; what it begins with already stays. */
    KILN_NODISCARD kiln_status rewrite(const std::vector<std::int32_t> &tokens) const
    {
        return detail::told(kiln_lm_session_rewrite(object_, tokens.data(), tokens.size()));
    }
    /** Choose the next token and add it to the text. */
    KILN_NODISCARD kiln_status next(std::int32_t &token) const
    {
        return detail::told(kiln_lm_next(object_, &token));
    }
    /** The logits of what may follow; `into` has as many elements as there are tokens. */
    KILN_NODISCARD kiln_status logits(std::vector<float> &into) const
    {
        return detail::told(kiln_lm_logits(object_, into.data(), into.size()));
    }
    /** Take back all but the first `length` tokens. */
    KILN_NODISCARD kiln_status truncate(std::size_t length) const
    {
        return detail::told(kiln_lm_session_truncate(object_, length));
    }
    std::size_t length() const
    {
        return kiln_lm_session_length(object_);
    }
    /** Most tokens of the text. */
    std::size_t context() const
    {
        return kiln_lm_session_context(object_);
    }
};

} // namespace kiln

#endif
