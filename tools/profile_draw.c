/* SPDX-License-Identifier: Apache-2.0 */
/* A profile as bars, for browsers and documents (SVG 1.1). */
#include "profile.h"

enum { WIDTH = 960, LABEL = 430, BAR = 14, LINE = 22, TOP = 44 };

static void write_escaped(const char *text, size_t most, FILE *file)
{
    for (size_t i = 0; i < most && text[i]; i++)
        switch (text[i]) {
        case '<': fputs("&lt;", file); break;
        case '>': fputs("&gt;", file); break;
        case '&': fputs("&amp;", file); break;
        default: fputc(text[i], file);
        }
    for (size_t i = 0; i < most; i++)
        if (!text[i])
            return;
    fputs("...", file);
}

static void draw_row(const struct kiln__profile *profile, const struct kiln__profile_row *row,
                     int y, FILE *file)
{
    double longest = profile->rows[0].seconds, room = WIDTH - LABEL - 150;
    double share = kiln__profile_share(profile, row);
    double length = longest > 0 ? row->seconds / longest * room : 0;
    fprintf(file, "<g><title>%s: ", row->name);
    write_escaped(row->what, 400, file);
    fputs(" ", file);
    write_escaped(row->shapes, 400, file);
    fprintf(file, "</title><text x=\"%d\" y=\"%d\" text-anchor=\"end\">", LABEL - 8, y + 11);
    const char *label = row->what[0] ? row->what : row->name;
    if (json_object_size(row->names) == 1)
        label = json_object_iter_key(json_object_iter(row->names));
    write_escaped(label, 60, file);
    fprintf(file, "</text><rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>", LABEL, y, length,
            BAR);
    fprintf(file, "<text x=\"%.1f\" y=\"%d\">%.3g ms", LABEL + length + 6, y + 11,
            row->seconds * 1e3);
    if (share >= 0)
        fprintf(file, ", %.0f%% of the peak", share * 100);
    fputs("</text></g>\n", file);
}

void kiln__profile_draw(const struct kiln__profile *profile, size_t most, FILE *file)
{
    size_t rows = profile->count < most ? profile->count : most;
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n"
            "<style>rect{fill:#c4622d}</style>\n"
            "<rect width=\"100%%\" height=\"100%%\" style=\"fill:#fff\"/>\n"
            "<text x=\"8\" y=\"24\" font-size=\"15\">%.3g ms of kernels and transfers, ",
            WIDTH, TOP + (int)rows * LINE + 8, profile->seconds * 1e3);
    write_escaped(profile->device, sizeof profile->device, file);
    fputs("</text>\n", file);
    for (size_t i = 0; i < rows; i++)
        draw_row(profile, &profile->rows[i], TOP + (int)i * LINE, file);
    fputs("</svg>\n", file);
}
