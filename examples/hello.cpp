/* SPDX-License-Identifier: Apache-2.0 */
/* relu(x) * 2 + y in one kernel, in C++. */
#include <cstdio>

#include <kiln/kiln.hpp>

int main()
{
    const std::vector<float> x{-1, 2, -3, 4}, y{10, 20, 30, 40};
    std::vector<float> z;
    kiln::context context;
    if (!context)
        return std::fprintf(stderr, "%s\n", kiln_last_error()), 1;
    kiln::batch b(context);
    kiln::tensor a = b.upload({4}, x), c = b.upload({4}, y);
    (kiln::relu(a) * 2 + c).read(z);
    if (b.execute())
        return std::fprintf(stderr, "%s\n", kiln_last_error()), 1;
    std::printf("%g %g %g %g\n", z[0], z[1], z[2], z[3]);
    return 0;
}
