/* SPDX-License-Identifier: Apache-2.0 */
/* Forms from JSON: what those of all paths have in common. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "serve.h"

bool serve_refuse_param(struct serve_reading *r, const char *param, const char *what)
{
    return serve_refuse(r->problem, 400, NULL, param, "%s: %s", param, what);
}

/* ---- numbers and truth values; null is none ---- */

json_t *serve_member(struct serve_reading *r, const char *name)
{
    json_t *value = json_object_get(r->body, name);
    return json_is_null(value) ? NULL : value;
}

bool serve_read_bool(struct serve_reading *r, const char *name, bool *value)
{
    json_t *found = serve_member(r, name);
    if (found && !json_is_boolean(found))
        return serve_refuse_param(r, name, "it is neither true nor false");
    *value = json_is_true(found);
    return true;
}

bool serve_read_whole(struct serve_reading *r, const char *name, json_int_t least, json_int_t most,
                      json_int_t *value)
{
    json_t *found = serve_member(r, name);
    if (!found)
        return true;
    *value = json_integer_value(found);
    if (json_is_integer(found) && *value >= least && *value <= most)
        return true;
    return serve_refuse(r->problem, 400, NULL, name, "%s: it is no whole number from %lld to %lld",
                        name, (long long)least, (long long)most);
}

bool serve_read_number(struct serve_reading *r, const char *name, double most, double *value)
{
    json_t *found = serve_member(r, name);
    if (!found)
        return true;
    *value = json_number_value(found);
    if (json_is_number(found) && *value >= 0 && *value <= most)
        return true;
    return serve_refuse(r->problem, 400, NULL, name, "%s: it is no number from 0 to %g", name,
                        most);
}

/* ---- models ---- */

bool serve_read_model(struct serve_reading *r, const struct serve_kind *kind)
{
    const struct server *server = r->form->server;
    json_t *name = serve_member(r, "model");
    size_t found = 0;
    if (name && !json_is_string(name))
        return serve_refuse_param(r, "model", "it is no text");
    for (size_t i = 0; i < server->count; i++) {
        struct served *model = &server->models[i];
        if (name ? strcmp(model->name, json_string_value(name)) != 0 : model->kind != kind)
            continue;
        r->form->model = model;
        found++;
    }
    if (found != 1)
        return serve_refuse(r->problem, 404, "model_not_found", "model",
                            "there is no model \"%.200s\"; GET /v1/models lists them",
                            name ? json_string_value(name) : "");
    const struct served *model = r->form->model;
    return model->kind == kind || serve_refuse(r->problem, 400, NULL, "model",
                                               "the model \"%.200s\" is %s, which answers at %s",
                                               model->name, model->kind->what, model->kind->paths);
}

/* ---- all ---- */

bool serve_form_read(const struct server *server, serve_reader *reader, const char *body,
                     size_t bytes, struct serve_form *form, struct serve_problem *problem)
{
    json_error_t error;
    *form = (struct serve_form){.server = server};
    json_t *json = json_loadb(body ? body : "", bytes, 0, &error);
    struct serve_reading reading = {form, json, problem};
    const bool fine =
        !json ? serve_refuse(problem, 400, NULL, NULL, "the body is no JSON: %s (byte %d)",
                             error.text, error.position)
        : !json_is_object(json)
            ? serve_refuse(problem, 400, NULL, NULL, "the body is no JSON object")
            : reader(&reading);
    json_decref(json);
    return fine;
}

void serve_form_free(struct serve_form *form)
{
    for (size_t i = 0; i < form->prompt_count; i++)
        free(form->prompts[i].tokens);
    for (size_t i = 0; i < form->stop_count; i++)
        free(form->stops[i]);
#ifdef HAVE_ONNX
    serve_vectors_free(form->vectors);
#endif
}
