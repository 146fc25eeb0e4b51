/* SPDX-License-Identifier: Apache-2.0 */
/* The table of types of weights. */
#include "lm/blocks.h"

static const struct kiln__block_format formats[] = {
    {0, 1, 4, KILN_F32},       {1, 1, 2, KILN_F16},       {30, 1, 2, KILN_BF16},
    {8, 32, 34, KILN_Q8_0},    {2, 32, 18, KILN_Q4_0},    {3, 32, 20, KILN_Q4_1},
    {6, 32, 22, KILN_Q5_0},    {7, 32, 24, KILN_Q5_1},    {12, 256, 144, KILN_Q4_K},
    {13, 256, 176, KILN_Q5_K}, {14, 256, 210, KILN_Q6_K},
};

const struct kiln__block_format *kiln__block_format(uint32_t number)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].number == number)
            return &formats[i];
    return NULL;
}

const struct kiln__block_format *kiln__block_format_of(kiln_type type)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].type == type && formats[i].weights == 1)
            return &formats[i];
    return NULL;
}
