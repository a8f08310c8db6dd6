cpdef put_away(value, record_offset)
