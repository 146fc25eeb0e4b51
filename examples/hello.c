/* SPDX-License-Identifier: Apache-2.0 */
/* relu(x) * 2 + y in one kernel. */
#include <stdio.h>

#include <kiln/kiln.h>

int main(void)
{
    float x[4] = {-1, 2, -3, 4}, y[4] = {10, 20, 30, 40}, z[4];
    kiln_context *context;
    if (kiln_context_create(NULL, &context))
        return fprintf(stderr, "%s\n", kiln_last_error()), 1;
    kiln_batch *b = kiln_batch_create(context);
    kiln_tensor a = kiln_upload(b, KILN_F32, kiln_shape(4), x);
    kiln_tensor c = kiln_upload(b, KILN_F32, kiln_shape(4), y);
    kiln_read(b, kiln_add(b, kiln_scale(b, kiln_relu(b, a), 2), c), z, sizeof z);
    if (kiln_batch_execute(b))
        return fprintf(stderr, "%s\n", kiln_last_error()), 1;
    printf("%g %g %g %g\n", z[0], z[1], z[2], z[3]);
    kiln_batch_release(b);
    kiln_context_release(context);
    return 0;
}
