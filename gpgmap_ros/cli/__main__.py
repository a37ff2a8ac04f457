"""python -m gpgmap_ros.cli: as `gpgmap`."""

import sys

from gpgmap_ros.cli.main import main

sys.exit(main())
