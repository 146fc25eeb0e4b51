/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of models, put together from links to the files that are checked in. */
#define _GNU_SOURCE
#include "hub.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tiny.h"

const char *hub_path(const struct hub *hub, const char *file)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", hub->path, file);
    return path;
}

static void put_link(const struct hub *hub, const char *from, const char *file)
{
    char *whole = realpath(model_path(from), NULL);
    cr_assert(whole && !symlink(whole, hub_path(hub, file)), "%s", from);
    free(whole);
}

static struct hub make_folder(void)
{
    struct hub hub;
    const char *temporary = getenv("TMPDIR");
    snprintf(hub.path, sizeof hub.path, "%s/kiln-folder.XXXXXX", temporary ? temporary : "/tmp");
    cr_assert(mkdtemp(hub.path));
    return hub;
}

struct hub hub_genai(void)
{
    const struct hub hub = make_folder();
    put_link(&hub, "genai/genai_config.json", "genai_config.json");
    put_link(&hub, "genai/model.onnx", "model.onnx");
    put_link(&hub, "genai/tokenizer.json", "tokenizer.json");
    return hub;
}

struct hub hub_make(const char *name, const char *tokenizer)
{
    const struct hub hub = make_folder();
    char from[256];
    const size_t length = strlen(name);
    DIR *files = opendir(model_path("folders"));
    cr_assert(files);
    for (struct dirent *file; (file = readdir(files)) != NULL;)
        if (!strncmp(file->d_name, name, length) && file->d_name[length] == '.') {
            snprintf(from, sizeof from, "folders/%.200s", file->d_name);
            put_link(&hub, from, file->d_name + length + 1);
        }
    closedir(files);
    snprintf(from, sizeof from, "../tokens/%.200s.json", tokenizer);
    put_link(&hub, from, "tokenizer.json");
    return hub;
}

void hub_remove(const struct hub *hub)
{
    DIR *files = opendir(hub->path);
    cr_assert(files);
    for (struct dirent *file; (file = readdir(files)) != NULL;)
        if (*file->d_name != '.')
            unlink(hub_path(hub, file->d_name));
    closedir(files);
    cr_expect_not(rmdir(hub->path));
}

void hub_put(const struct hub *hub, const char *file, const void *bytes, size_t count)
{
    const char *path = hub_path(hub, file);
    unlink(path);
    FILE *out = bytes ? fopen(path, "wb") : NULL;
    cr_assert(!bytes || (out && fwrite(bytes, 1, count, out) == count && !fclose(out)), "%s", path);
}

void hub_text(const struct hub *hub, const char *file, const char *text)
{
    hub_put(hub, file, text, text ? strlen(text) : 0);
}

char *hub_get(const struct hub *hub, const char *file, size_t *count)
{
    FILE *in = fopen(hub_path(hub, file), "rb");
    cr_assert(in, "%s", file);
    fseek(in, 0, SEEK_END);
    *count = (size_t)ftell(in);
    rewind(in);
    char *bytes = calloc(1, *count + 1);
    cr_assert(bytes && fread(bytes, 1, *count, in) == *count);
    fclose(in);
    return bytes;
}

void hub_replace(const struct hub *hub, const char *file, const char *part, const char *other)
{
    size_t count;
    char *bytes = hub_get(hub, file, &count), *changed;
    const char *at = strstr(bytes, part);
    cr_assert(at, "%s has no %s", file, part);
    cr_assert_geq(
        asprintf(&changed, "%.*s%s%s", (int)(at - bytes), bytes, other, at + strlen(part)), 0);
    hub_text(hub, file, changed);
    free(changed);
    free(bytes);
}
