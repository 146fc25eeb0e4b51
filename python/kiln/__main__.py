# SPDX-License-Identifier: Apache-2.0
"""`kiln`, and `python -m kiln`: the program of a wheel that carries the library, or the system's."""
import os
import sys

from ._drivers import use_packaged


def main() -> None:
    packaged = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'libs', 'kiln')
    program = packaged if os.path.exists(packaged) else 'kiln'
    use_packaged()
    try:
        os.execvp(program, ['kiln'] + sys.argv[1:])
    except OSError as error:
        sys.exit(f'kiln: {program} cannot be started: {error.strerror}')


if __name__ == '__main__':
    main()
