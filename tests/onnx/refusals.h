/* SPDX-License-Identifier: Apache-2.0 */
/* A model that may be refused, and a folder for files: what tests of bad models share. */
#pragma once

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/context.h"
#include "tests/onnx/models.h"

static char folder[512];

static inline void make_folder(void)
{
    const char *place = getenv("TMPDIR");
    begin_models();
    snprintf(folder, sizeof folder, "%s/onnx-%d", place ? place : "/tmp", (int)getpid());
    mkdir(folder, 0700);
}

static inline void remove_folder(void)
{
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    cr_assert_eq(system(command), 0);
    end_models();
}

static Onnx__ModelProto *model; /* of the test, until the fixture frees it */

static inline void begin(int version)
{
    model = new_model(version);
    add_input(model, "x", FLOAT, "2 3");
    add_output(model, "y", FLOAT, NULL);
}

static inline void refuse(kiln_status status, const char *sentence)
{
    kiln_onnx_model *loaded;
    expect_error(load_model(context, model, NULL, &loaded), status, sentence);
    cr_assert_null(loaded);
}
