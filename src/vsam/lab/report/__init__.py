"""Reports on runs: tables, figures, and a page that shows them."""
