# Sourced by load, probe and unload of drivers without device files.
make_devices() { :; }
remove_devices() { :; }
count_devices() { echo 0; }
holders() { :; }
