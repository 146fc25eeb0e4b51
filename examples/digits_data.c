/* SPDX-License-Identifier: Apache-2.0 */
#include "digits_data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* One line into the next row; 0 if it is none. */
static int read_row(const char *line, uint8_t *pixels, uint8_t *label)
{
    for (int i = 0; i <= DIGIT_PIXELS; i++) {
        char *end;
        long value = strtol(line, &end, 10);
        if (end == line || value < 0 || value > 16 || (i < DIGIT_PIXELS && *end != ','))
            return 0;
        *(i < DIGIT_PIXELS ? &pixels[i] : label) = (uint8_t)value;
        line = end + 1;
    }
    return 1;
}

static int grow(struct digits *digits, size_t *capacity)
{
    if (digits->count < *capacity)
        return 1;
    *capacity = *capacity ? *capacity * 2 : 2048;
    uint8_t *pixels = realloc(digits->pixels, *capacity * DIGIT_PIXELS);
    digits->pixels = pixels ? pixels : digits->pixels;
    uint8_t *labels = realloc(digits->labels, *capacity);
    digits->labels = labels ? labels : digits->labels;
    return pixels && labels;
}

int digits_read(const char *path, struct digits *digits)
{
    char line[512];
    size_t capacity = 0;
    *digits = (struct digits){0};
    gzFile file = gzopen(path, "rb");
    if (!file) {
        fprintf(stderr, "digits: cannot open %s\n", path);
        return -1;
    }
    while (gzgets(file, line, sizeof line) && grow(digits, &capacity)) {
        uint8_t *row = digits->pixels + digits->count * DIGIT_PIXELS;
        if (!read_row(line, row, &digits->labels[digits->count])) {
            fprintf(stderr, "digits: line %zu of %s is no digit\n", digits->count + 1, path);
            break;
        }
        digits->count++;
    }
    int complete = gzeof(file) && digits->count > 0;
    gzclose(file);
    if (complete)
        return 0;
    fprintf(stderr, "digits: %s was not read to its end\n", path);
    digits_free(digits);
    return -1;
}

void digits_free(struct digits *digits)
{
    free(digits->pixels);
    free(digits->labels);
    *digits = (struct digits){0};
}

void digits_print(const struct digits *digits, const size_t *which, const char *const *captions,
                  size_t count)
{
    static const char shades[] = " .:-=+*#%@";
    for (int y = 0; y < DIGIT_SIDE; y++) {
        for (size_t i = 0; i < count; i++) {
            const uint8_t *row = digits->pixels + which[i] * DIGIT_PIXELS + (size_t)y * DIGIT_SIDE;
            printf("  ");
            for (int x = 0; x < DIGIT_SIDE; x++) {
                char shade = shades[row[x] * (sizeof shades - 2) / 16];
                printf("%c%c", shade, shade);
            }
        }
        printf("\n");
    }
    for (size_t i = 0; i < count; i++)
        printf("  %-16s", captions[i]);
    printf("\n");
}
