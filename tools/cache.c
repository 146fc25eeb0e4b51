/* SPDX-License-Identifier: Apache-2.0 */
/* `kiln cache`: look at the kernel cache, make it smaller, carry it elsewhere. */
#include <argp.h>
#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <kiln/cache.h>

#include "columns.h"
#include "suggest.h"
#include "tool.h"

#define DEFAULT_LIMIT ((uint64_t)256 << 20)

struct request;

/* What can be done, and what belongs to it. */
struct action {
    const char *name;
    bool takes_file, takes_json, takes_limit;
    enum { NO_PROGRAM, MAY_HAVE_PROGRAM, NEEDS_PROGRAM } program;
    int (*run)(const struct request *request);
};

struct request {
    const struct action *action;
    const char *file, *folder;
    char **program; /* with its arguments, NULL-terminated */
    uint64_t limit;
    bool json, limited;
};

static int complain(void)
{
    fprintf(stderr, "kiln cache: %s\n", kiln_last_error());
    return 1;
}

/* An entry may come from elsewhere: no control characters on the terminal. */
static const char *printable(char *text)
{
    for (char *at = text; *at; at++)
        if (iscntrl((unsigned char)*at))
            *at = '?';
    return text;
}

/* Text that is no UTF-8 has no JSON. */
static json_t *text_json(const char *text)
{
    json_t *json = json_string(text);
    return json ? json : json_null();
}

static int print_json(json_t *root)
{
    int failed = !root || json_dumpf(root, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(root);
    if (failed || fflush(stdout)) {
        fputs("kiln cache: the JSON text could not be written\n", stderr);
        return 1;
    }
    return 0;
}

/* ---- list ---- */

static int list_text(const kiln_cache_entry *entry, void *user)
{
    kiln_cache_entry copy = *entry;
    char used[32] = "?";
    time_t seconds = (time_t)entry->used;
    struct tm parts;
    (void)user;
    if (localtime_r(&seconds, &parts))
        strftime(used, sizeof used, "%Y-%m-%d %H:%M:%S", &parts);
    const int printed =
        printf("%s %10llu  %s  ", used, (unsigned long long)entry->bytes, printable(copy.name));
    if (entry->valid)
        kiln__tool_print_rest(printed, "%s  [%s, %s]", printable(copy.kernel),
                              printable(copy.device), printable(copy.driver));
    else
        kiln__tool_print_rest(
            printed, "(of no use: damaged, foreign, of another format, or not to be read)");
    return 0;
}

static int list_json(const kiln_cache_entry *entry, void *user)
{
    json_t *one = json_pack("{s:o,s:o,s:o,s:o,s:I,s:I,s:b}", "name", text_json(entry->name),
                            "kernel", text_json(entry->kernel), "device", text_json(entry->device),
                            "driver", text_json(entry->driver), "bytes", (json_int_t)entry->bytes,
                            "used", (json_int_t)entry->used, "valid", entry->valid);
    return json_array_append_new(user, one);
}

static int run_list(const struct request *request)
{
    json_t *all = request->json ? json_array() : NULL;
    if (kiln_cache_list(request->folder, request->json ? list_json : list_text, all)) {
        json_decref(all);
        return complain();
    }
    return request->json ? print_json(all) : 0;
}

/* ---- the others ---- */

static int run_stat(const struct request *request)
{
    kiln_cache_stats stats;
    if (kiln_cache_get_stats(request->folder, &stats))
        return complain();
    if (request->json)
        return print_json(json_pack("{s:o,s:I,s:I,s:I}", "folder", text_json(stats.folder),
                                    "entries", (json_int_t)stats.entries, "bytes",
                                    (json_int_t)stats.bytes, "invalid", (json_int_t)stats.invalid));
    printf("folder     %s\n", *stats.folder ? printable(stats.folder) : "(memory only)");
    printf("entries    %llu\n", (unsigned long long)stats.entries);
    printf("bytes      %llu\n", (unsigned long long)stats.bytes);
    printf("invalid    %llu\n", (unsigned long long)stats.invalid);
    return 0;
}

static int remove_down_to(const struct request *request, uint64_t limit)
{
    uint64_t removed = 0;
    if (kiln_cache_prune(request->folder, limit, &removed))
        return complain();
    printf("%llu removed\n", (unsigned long long)removed);
    return 0;
}

static int run_prune(const struct request *request)
{
    return remove_down_to(request, request->limited ? request->limit : DEFAULT_LIMIT);
}

static int run_clear(const struct request *request)
{
    return remove_down_to(request, 0);
}

/* $KILN_CACHE_WAIT makes the library wait for its stores when the program ends. */
static bool set_environment(const struct request *request)
{
    if (!setenv("KILN_CACHE_WAIT", "1", 1) && !setenv("KILN_CACHE", "on", 1) &&
        (!request->folder || !setenv("KILN_CACHE_DIR", request->folder, 1)))
        return true;
    perror("kiln cache: the environment");
    return false;
}

/* What the program has used, by a list that lasts as long as this. */
static int run_export_of(const struct request *request)
{
    const char *parent = getenv("TMPDIR");
    char list[4096];
    uint64_t count = 0;
    snprintf(list, sizeof list, "%s/kiln-used-XXXXXX", parent && *parent ? parent : "/tmp");
    int fd = mkstemp(list);
    if (fd < 0 || close(fd) || setenv("KILN_CACHE_USED", list, 1)) {
        fprintf(stderr, "kiln cache: %s: %s\n", list, strerror(errno));
        return 1;
    }
    int status =
        set_environment(request) ? kiln__tool_run("kiln cache", request->program, false) : 1;
    unsetenv("KILN_CACHE_USED");
    if (status)
        fprintf(stderr, "kiln cache: nothing is exported: %s ended with %d\n", request->program[0],
                status);
    else if (kiln_cache_export_used(request->folder, request->file, list, &count))
        status = complain();
    else
        printf("%llu exported\n", (unsigned long long)count);
    unlink(list);
    return status;
}

static int run_export(const struct request *request)
{
    uint64_t count = 0;
    if (request->program)
        return run_export_of(request);
    if (kiln_cache_export(request->folder, request->file, &count))
        return complain();
    printf("%llu exported\n", (unsigned long long)count);
    return 0;
}

static int run_import(const struct request *request)
{
    uint64_t count = 0;
    kiln_status status = kiln_cache_import(request->folder, request->file, &count);
    printf("%llu imported\n", (unsigned long long)count);
    return status ? complain() : 0;
}

/* ---- warm ---- */

struct names {
    char (*items)[64];
    size_t count;
    bool failed;
};

static int add_name(const kiln_cache_entry *entry, void *user)
{
    struct names *names = user;
    char(*items)[64] = realloc(names->items, (names->count + 1) * sizeof *items);
    names->failed |= !items;
    if (!items)
        return 1;
    names->items = items;
    snprintf(items[names->count++], sizeof *items, "%s", entry->name);
    return 0;
}

/* A cache that does not exist yet has none. */
static bool list_names(const char *folder, struct names *names)
{
    kiln_cache_stats stats;
    *names = (struct names){0};
    return !kiln_cache_get_stats(folder, &stats) &&
           (!stats.entries || !kiln_cache_list(folder, add_name, names)) && !names->failed;
}

static bool has_name(const struct names *names, const char *name)
{
    for (size_t i = 0; i < names->count; i++)
        if (!strcmp(names->items[i], name))
            return true;
    return false;
}

static int run_warm(const struct request *request)
{
    struct names before, after;
    size_t stored = 0;
    if (!set_environment(request))
        return 1;
    bool listed = list_names(NULL, &before);
    int status = listed ? kiln__tool_run("kiln cache", request->program, false) : 0;
    bool relisted = listed && list_names(NULL, &after);
    for (size_t i = 0; relisted && i < after.count; i++)
        stored += !has_name(&before, after.items[i]);
    if (relisted) {
        printf("%zu stored\n", stored);
        free(after.items);
    } else
        status = complain();
    free(before.items);
    return status;
}

static const struct action actions[] = {
    /* clang-format off */
    /*         file   json   limit  program */
    {"list",   false, true,  false, NO_PROGRAM,       run_list},
    {"stat",   false, true,  false, NO_PROGRAM,       run_stat},
    {"prune",  false, false, true,  NO_PROGRAM,       run_prune},
    {"clear",  false, false, false, NO_PROGRAM,       run_clear},
    {"export", true,  false, false, MAY_HAVE_PROGRAM, run_export},
    {"import", true,  false, false, NO_PROGRAM,       run_import},
    {"warm",   false, false, false, NEEDS_PROGRAM,    run_warm},
    /* clang-format on */
};

/* ---- arguments ---- */

static const struct argp_option options[] = {
    {"dir", 'd', "FOLDER", 0, "This cache; without it the one that programs use", 0},
    {"json", 'j', NULL, 0, "list, stat: print JSON", 0},
    {"limit", 'l', "BYTES", 0, "prune: at most so many remain, such as 64M; else 256M", 0},
    {0},
};

static const struct action *find_action(const char *name)
{
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
        if (!strcmp(name, actions[i].name))
            return &actions[i];
    return NULL;
}

/* "64M": a whole number and K, M, G or T for powers of 1,024. */
static bool parse_bytes(const char *text, uint64_t *bytes)
{
    static const char suffixes[] = "KMGT";
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)*text) || errno)
        return false;
    const char *suffix = *end ? strchr(suffixes, toupper((unsigned char)*end)) : NULL;
    unsigned shift = suffix ? 10 * (unsigned)(suffix - suffixes + 1) : 0;
    if (end[suffix ? 1 : 0] || value > UINT64_MAX >> shift)
        return false;
    *bytes = (uint64_t)value << shift;
    return true;
}

static void refuse_action(const char *name, const struct argp_state *state)
{
    struct kiln__suggestion suggestion = {.word = name};
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
        kiln__suggest(&suggestion, actions[i].name);
    kiln__refuse_word(state, "action", &suggestion);
}

static void take_argument(struct request *request, const char *arg, struct argp_state *state)
{
    if (!request->action) {
        request->action = find_action(arg);
        if (!request->action)
            refuse_action(arg, state);
    } else if (request->action->takes_file && !request->file)
        request->file = arg;
    else if (request->action->program) {
        /* What follows the program's name is the program's own. */
        request->program = state->argv + state->next - 1;
        state->next = state->argc;
    } else
        argp_error(state, "\"%s\" is one argument too many", arg);
}

static void check(const struct request *request, struct argp_state *state)
{
    const struct action *action = request->action;
    if (!action)
        argp_error(state, "an action is missing: list, stat, prune, clear, export, import "
                          "or warm");
    else if (action->takes_file && !request->file)
        argp_error(state, "%s needs the name of a file", action->name);
    else if (action->program == NEEDS_PROGRAM && !request->program)
        argp_error(state, "%s needs a program to run", action->name);
    else if (request->json && !action->takes_json)
        argp_error(state, "%s has no --json", action->name);
    else if (request->limited && !action->takes_limit)
        argp_error(state, "%s has no --limit", action->name);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct request *request = state->input;
    switch (key) {
    case 'd': request->folder = arg; return 0;
    case 'j': request->json = true; return 0;
    case 'l':
        request->limited = true;
        if (!parse_bytes(arg, &request->limit))
            argp_error(state, "\"%s\" is no number of bytes such as 1000 or 64M", arg);
        return 0;
    case ARGP_KEY_ARG: take_argument(request, arg, state); return 0;
    case ARGP_KEY_END: check(request, state); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int kiln__tool_cache(int argc, char **argv)
{
    static const char doc[] =
        "Look after the kernel cache on disk.\v"
        "Actions:\n"
        "  list          the entries, least recently used first\n"
        "  stat          where it is, how many entries, how many bytes\n"
        "  prune         remove what is of no use, then the least recently used entries\n"
        "  clear         remove all entries\n"
        "  export FILE   write all entries into one file; with PROGRAM run it, and write those\n"
        "                that it used\n"
        "  import FILE   add those of such a file: machine code, so trust it first\n"
        "  warm PROGRAM  run a program, and have all its kernels stored when it ends";
    struct argp argp = {.options = options,
                        .parser = parse,
                        .args_doc = "list|stat|prune|clear\nexport FILE [PROGRAM [ARGUMENT...]]\n"
                                    "import FILE\nwarm PROGRAM [ARGUMENT...]",
                        .doc = doc};
    struct request request = {0};
    kiln__tool_parse(&argp, argc, argv, ARGP_IN_ORDER, &request);
    return request.action->run(&request);
}
