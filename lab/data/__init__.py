"""Data: fact tables, generated tasks, corpora, our tokenizer, packed token streams and their mixture."""
