"""A rover drive over real relief, made here and mapped live by the real node: `gpgmap demo`."""
