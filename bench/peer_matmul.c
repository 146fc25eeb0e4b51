/* SPDX-License-Identifier: Apache-2.0 */
/* Products by OpenBLAS and CLBlast, where they are installed. */
#include "peer_matmul.h"

#ifdef HAVE_OPENBLAS

#include <cblas.h>

bool peer_has_openblas(void)
{
    return true;
}

void peer_openblas(const struct peer_product *product, const float *a, const float *b, float *c)
{
    int m = (int)product->m, n = (int)product->n, k = (int)product->k;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, product->transpose_b ? CblasTrans : CblasNoTrans, m, n,
                k, 1, a, k, b, product->transpose_b ? k : n, 0, c, n);
}

void peer_openblas_row(const struct peer_product *product, const float *a, const float *b, float *c)
{
    int n = (int)product->n, k = (int)product->k;
    if (product->transpose_b)
        cblas_sgemv(CblasRowMajor, CblasNoTrans, n, k, 1, b, k, a, 1, 0, c, 1);
    else
        cblas_sgemv(CblasRowMajor, CblasTrans, k, n, 1, b, n, a, 1, 0, c, 1);
}

#else

bool peer_has_openblas(void)
{
    return false;
}

void peer_openblas(const struct peer_product *product, const float *a, const float *b, float *c)
{
    (void)product, (void)a, (void)b, (void)c;
}

void peer_openblas_row(const struct peer_product *product, const float *a, const float *b, float *c)
{
    (void)product, (void)a, (void)b, (void)c;
}

#endif

#ifdef HAVE_CLBLAST

#include <clblast_c.h>

bool peer_has_clblast(void)
{
    return true;
}

bool peer_clblast(const struct peer_product *product, cl_command_queue queue, cl_mem a, cl_mem b,
                  cl_mem c)
{
    size_t m = product->m, n = product->n, k = product->k;
    CLBlastTranspose transpose_b = product->transpose_b ? CLBlastTransposeYes : CLBlastTransposeNo;
    CLBlastStatusCode code =
        CLBlastSgemm(CLBlastLayoutRowMajor, CLBlastTransposeNo, transpose_b, m, n, k, 1, a, 0, k, b,
                     0, product->transpose_b ? k : n, 0, c, 0, n, &queue, NULL);
    return code == CLBlastSuccess && clFinish(queue) == CL_SUCCESS;
}

#else

bool peer_has_clblast(void)
{
    return false;
}

bool peer_clblast(const struct peer_product *product, cl_command_queue queue, cl_mem a, cl_mem b,
                  cl_mem c)
{
    (void)product, (void)queue, (void)a, (void)b, (void)c;
    return false;
}

#endif
