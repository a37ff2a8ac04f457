"""Reading and writing formats of others: recordings, point files, trajectories, GeoTIFF, meshes, Nav2 maps.

recordings     messages of one or several bags in order (bags; damaged ones: mcap_scan, sqlite_scan, ros1_scan)
points/        LAS, LAZ, PLY, PCD, XYZ, NPZ, a piece at a time
pose_files     trajectories as poses of clouds: TUM, EuRoC, KITTI
map_products   layers as GeoTIFF and NPZ, and back (geotiff, mesh, nav2_map, grid_map_bag: one format each)
run_folder     the files of a run
"""
