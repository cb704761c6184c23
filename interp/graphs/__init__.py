"""Attribution graphs: which features of a prompt's tokens lead to which, and on to the answer, through transcoders."""
