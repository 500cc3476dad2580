"""Mirror: topics of one cluster copied to another, with the names, topics and record formats of MirrorMaker 2."""
