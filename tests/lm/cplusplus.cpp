/* SPDX-License-Identifier: Apache-2.0 */
/* kiln/lm.hpp with the tiny model: tests/pages/test_cplusplus.sh compiles it with exceptions and
 * without. Says what is wrong, and nothing if all is right. */
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <kiln/lm.hpp>

#include "../support/expect.hpp"

static std::string path(const char *name = "tiny.gguf")
{
    const char *folder = std::getenv("KILN_SOURCE");
    return std::string(folder ? folder : ".") + "/tests/lm/" + name;
}

static void look(const kiln::language_model &model)
{
    kiln_lm_info info;
    EXPECT(!model.get_info(info) && info.vocabulary == 400 && info.end == 2);
    const std::vector<std::int32_t> tokens = model.tokenize("the sun<|im_end|>", KILN_LM_CONTROL);
    std::string back;
    for (std::int32_t token : tokens)
        back += model.token_text(token);
    EXPECT(back == "the sun" && tokens.back() == 2 && model.is_end(2) && !model.is_end(1));
    kiln::chat_options plain;
    plain.without_answer = 1;
    EXPECT(model.chat_text({{"system", "a"}, {"user", "b"}}, plain) ==
           "<|im_start|>system\na<|im_end|>\n<|im_start|>user\nb<|im_end|>\n");
}

static void talk(const kiln::language_model &model)
{
    kiln::session_options options;
    options.context = 90;
    kiln::language_session session(model, options), empty;
    const std::vector<std::int32_t> tokens = model.chat_tokens({{"user", "the sun"}});
    std::vector<float> logits(400);
    std::int32_t first = -1, again = -1;
    EXPECT(session && session.context() == 90 && !empty.context());
    EXPECT(!session.rewrite(tokens) && !session.logits(logits) && !session.next(first));
    EXPECT(session.length() == tokens.size() + 1 && logits[static_cast<std::size_t>(first)] > 0);
    EXPECT(!session.truncate(tokens.size()) && !session.next(again) && again == first);
    EXPECT(!session.truncate(0) && !session.feed(tokens) && !session.next(again) && again == first);
}

static void embed(const kiln::context &context)
{
    const kiln::language_model model(context, path("bert.gguf"));
    const std::vector<float> vectors = model.embed({"the sun", "the rain", "the sun"});
    EXPECT(vectors.size() == 96 &&
           std::equal(vectors.begin(), vectors.begin() + 32, vectors.end() - 32));
    EXPECT(!std::equal(vectors.begin(), vectors.begin() + 32, vectors.begin() + 32));
    EXPECT(model.embed({}).empty());
}

static void fail(const kiln::context &context, const kiln::language_model &model)
{
#ifdef KILN_EXCEPTIONS
    int caught = 0;
    try {
        kiln::language_model none(context, "/nowhere.gguf");
    } catch (const kiln::error &error) {
        caught += error.code() == KILN_IO_ERROR;
    }
    try {
        model.chat_tokens({{"", "x"}});
    } catch (const kiln::error &error) {
        caught += error.code() == KILN_INVALID_ARGUMENT;
    }
    EXPECT(caught == 2);
#else
    kiln::language_model none(context, "/nowhere.gguf");
    EXPECT(!none && !kiln::language_session(none));
    EXPECT(model.chat_tokens({{"", "x"}}).empty() && model.chat_text({{"", "x"}}).empty());
    EXPECT(none.tokenize("x").empty());
#endif
}

int main()
{
    kiln::context context;
    if (!context) {
        std::puts(kiln_last_error());
        return 77;
    }
    kiln::language_model model(context, path());
    EXPECT(model);
    look(model);
    talk(model);
    embed(context);
    fail(context, model);
    return faults != 0;
}
