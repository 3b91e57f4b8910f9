"""One file per upstream dialect: a turn becomes an upstream request, its answer becomes events. Pure."""
