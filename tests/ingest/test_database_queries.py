from layerscope.ingest.database_queries import quoted, select


def test_tables_without_the_columns_are_not_asked() -> None:
    """No query is made where nothing that is wanted is there."""
    assert select("work", ["start"], ["end"], ["name"], {}) == ""


def test_missing_columns_are_null() -> None:
    """Columns keep their places; one that is missing is asked as NULL."""
    query = select("work", ["start"], ["end", "start"], ["name"], {"end": (1,)})
    assert query == (
        'SELECT NULL, CASE typeof("start") WHEN \'integer\' THEN "start" '
        "WHEN 'real' THEN CAST(\"start\" AS INTEGER) END, NULL "
        'FROM "work" NOT INDEXED'
    )


def test_conditions_are_joined() -> None:
    """Every condition on a column that is there must hold."""
    query = select("work", ["a", "b"], ["a"], [], {"a": (1, 2), "b": (3,)})
    assert query.endswith('NOT INDEXED WHERE "a" IN (1, 2) AND "b" IN (3)')


def test_quotes_are_doubled() -> None:
    """A quote within a name does not end it."""
    assert quoted('a"b') == '"a""b"'
