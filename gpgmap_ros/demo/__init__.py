"""A rover's loop over real relief with drifting odometry, mapped and closed live by the real node: `gpgmap demo`."""
