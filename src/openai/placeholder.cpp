namespace pocketfleet {}
