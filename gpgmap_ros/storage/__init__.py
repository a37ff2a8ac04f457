"""Files, for every room that keeps some.

atomic       files that are there as a whole or not at all
archive      the format of maps, submaps and sessions: an NPZ with a header and a checksum
npz          NPZ files, their declared sizes checked
untrusted    files that may hold anything, opened and read without trusting what they say of themselves
folder_lock  one writer per folder
"""
