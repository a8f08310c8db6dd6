"""Generated from shapes/*.shape by `make stubs`: not to be edited.

Codecs as `compiler` writes them, which Python compiles once and keeps, as it does with every module. They lack what
they name, and get it from the compiler, which takes those only whose text has the checksum that it had.
"""
# mypy: ignore-errors


def encode_SnapshotHeaderRecord_v0(m, o, buffers):
    if m.unknown_tags:
        o += pack_hq(m.version, m.last_contained_log_timestamp)
        t1 = []
        write_tags(o, t1, m.unknown_tags)
    else:
        o += pack_hqx(m.version, m.last_contained_log_timestamp)
    return o


def decode_SnapshotHeaderRecord_v0(b, p, end, elements):
    m = new(c_SnapshotHeaderRecord)
    m.unknown_tags = None
    m.version, m.last_contained_log_timestamp, n1 = unpack_hqB(b, p)
    p += 11
    if n1:
        m.unknown_tags, p, elements = unknown_tags(b, p, end, n1, elements)
    return m, p


def encode_KRaftVersionRecord_v0(m, o, buffers):
    if m.unknown_tags:
        o += pack_hh(m.version, m.kraft_version)
        t1 = []
        write_tags(o, t1, m.unknown_tags)
    else:
        o += pack_hhx(m.version, m.kraft_version)
    return o


def decode_KRaftVersionRecord_v0(b, p, end, elements):
    m = new(c_KRaftVersionRecord)
    m.unknown_tags = None
    m.version, m.kraft_version, n1 = unpack_hhB(b, p)
    p += 5
    if n1:
        m.unknown_tags, p, elements = unknown_tags(b, p, end, n1, elements)
    return m, p


def encode_VotersRecord_v0(m, o, buffers):
    a1 = m.voters
    n2 = len(a1) + 1
    o += pack_h(m.version)
    o += UVARINT[n2] if n2 < 128 else uvarint(n2)
    for e3 in a1:
        if len(e3.voter_directory_id) != 16:
            raise Malformed
        a4 = e3.endpoints
        n5 = len(a4) + 1
        o += pack_i16s(e3.voter_id, e3.voter_directory_id)
        o += UVARINT[n5] if n5 < 128 else uvarint(n5)
        for e6 in a4:
            v7 = e6.name.encode()
            n8 = len(v7) + 1
            o += UVARINT[n8] if n8 < 128 else uvarint(n8)
            o += v7
            v9 = e6.host.encode()
            n10 = len(v9) + 1
            o += UVARINT[n10] if n10 < 128 else uvarint(n10)
            o += v9
            if e6.unknown_tags:
                o += pack_H(e6.port)
                t11 = []
                write_tags(o, t11, e6.unknown_tags)
            else:
                o += pack_Hx(e6.port)
        s12 = e3.kraft_version_feature
        if s12.unknown_tags:
            o += pack_hh(s12.min_supported_version, s12.max_supported_version)
            t13 = []
            write_tags(o, t13, s12.unknown_tags)
        else:
            o += pack_hhx(s12.min_supported_version, s12.max_supported_version)
        if e3.unknown_tags:
            t14 = []
            write_tags(o, t14, e3.unknown_tags)
        else:
            o += b'\x00'
    if m.unknown_tags:
        t15 = []
        write_tags(o, t15, m.unknown_tags)
    else:
        o += b'\x00'
    return o


def decode_VotersRecord_v0(b, p, end, elements):
    m = new(c_VotersRecord)
    m.unknown_tags = None
    m.version, n1 = unpack_hB(b, p)
    p += 3
    if n1 > 127:
        n1, p = uvarint_rest(b, p, n1)
    n1 -= 1
    elements -= n1
    if n1 < 0 or elements < 0 or n1 * 27 > end - p:
        raise Malformed
    m.voters = a2 = []
    while n1:
        n1 -= 1
        e3 = new(c_Voter)
        e3.unknown_tags = None
        e3.voter_id, e3.voter_directory_id, n4 = unpack_i16sB(b, p)
        p += 21
        if n4 > 127:
            n4, p = uvarint_rest(b, p, n4)
        n4 -= 1
        elements -= n4
        if n4 < 0 or elements < 0 or n4 * 5 > end - p:
            raise Malformed
        e3.endpoints = a5 = []
        while n4:
            n4 -= 1
            e6 = new(c_Endpoint)
            e6.unknown_tags = None
            n7 = b[p]
            p += 1
            if n7 > 127:
                n7, p = uvarint_rest(b, p, n7)
            q = p + n7 - 1
            if not p <= q <= end:
                raise Malformed
            e6.name = b[p:q].decode()
            p = q
            n8 = b[p]
            p += 1
            if n8 > 127:
                n8, p = uvarint_rest(b, p, n8)
            q = p + n8 - 1
            if not p <= q <= end:
                raise Malformed
            e6.host = b[p:q].decode()
            p = q
            e6.port, n9 = unpack_HB(b, p)
            p += 3
            if n9:
                e6.unknown_tags, p, elements = unknown_tags(b, p, end, n9, elements)
            a5.append(e6)
        s10 = new(c_KRaftVersionFeature)
        s10.unknown_tags = None
        s10.min_supported_version, s10.max_supported_version, n11 = unpack_hhB(b, p)
        p += 5
        if n11:
            s10.unknown_tags, p, elements = unknown_tags(b, p, end, n11, elements)
        e3.kraft_version_feature = s10
        n12 = b[p]
        p += 1
        if n12:
            e3.unknown_tags, p, elements = unknown_tags(b, p, end, n12, elements)
        a2.append(e3)
    n13 = b[p]
    p += 1
    if n13:
        m.unknown_tags, p, elements = unknown_tags(b, p, end, n13, elements)
    return m, p


def encode_SnapshotFooterRecord_v0(m, o, buffers):
    if m.unknown_tags:
        o += pack_h(m.version)
        t1 = []
        write_tags(o, t1, m.unknown_tags)
    else:
        o += pack_hx(m.version)
    return o


def decode_SnapshotFooterRecord_v0(b, p, end, elements):
    m = new(c_SnapshotFooterRecord)
    m.unknown_tags = None
    m.version, n1 = unpack_hB(b, p)
    p += 3
    if n1:
        m.unknown_tags, p, elements = unknown_tags(b, p, end, n1, elements)
    return m, p


def encode_LeaderChangeMessage_v0(m, o, buffers):
    a1 = m.voters
    n2 = len(a1) + 1
    o += pack_hi(m.version, m.leader_id)
    o += UVARINT[n2] if n2 < 128 else uvarint(n2)
    for e3 in a1:
        if e3.voter_directory_id != b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00':
            raise Malformed
        if e3.unknown_tags:
            o += pack_i(e3.voter_id)
            t4 = []
            write_tags(o, t4, e3.unknown_tags)
        else:
            o += pack_ix(e3.voter_id)
    a5 = m.granting_voters
    n6 = len(a5) + 1
    o += UVARINT[n6] if n6 < 128 else uvarint(n6)
    for e7 in a5:
        if e7.voter_directory_id != b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00':
            raise Malformed
        if e7.unknown_tags:
            o += pack_i(e7.voter_id)
            t8 = []
            write_tags(o, t8, e7.unknown_tags)
        else:
            o += pack_ix(e7.voter_id)
    if m.unknown_tags:
        t9 = []
        write_tags(o, t9, m.unknown_tags)
    else:
        o += b'\x00'
    return o


def decode_LeaderChangeMessage_v0(b, p, end, elements):
    m = new(c_LeaderChangeMessage)
    m.unknown_tags = None
    m.version, m.leader_id, n1 = unpack_hiB(b, p)
    p += 7
    if n1 > 127:
        n1, p = uvarint_rest(b, p, n1)
    n1 -= 1
    elements -= n1
    if n1 < 0 or elements < 0 or n1 * 5 > end - p:
        raise Malformed
    m.voters = a2 = []
    while n1:
        n1 -= 1
        e3 = new(c_Voter)
        e3.unknown_tags = None
        e3.voter_directory_id = b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00'
        e3.voter_id, n4 = unpack_iB(b, p)
        p += 5
        if n4:
            e3.unknown_tags, p, elements = unknown_tags(b, p, end, n4, elements)
        a2.append(e3)
    n5 = b[p]
    p += 1
    if n5 > 127:
        n5, p = uvarint_rest(b, p, n5)
    n5 -= 1
    elements -= n5
    if n5 < 0 or elements < 0 or n5 * 5 > end - p:
        raise Malformed
    m.granting_voters = a6 = []
    while n5:
        n5 -= 1
        e7 = new(c_Voter)
        e7.unknown_tags = None
        e7.voter_directory_id = b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00'
        e7.voter_id, n8 = unpack_iB(b, p)
        p += 5
        if n8:
            e7.unknown_tags, p, elements = unknown_tags(b, p, end, n8, elements)
        a6.append(e7)
    n9 = b[p]
    p += 1
    if n9:
        m.unknown_tags, p, elements = unknown_tags(b, p, end, n9, elements)
    return m, p


def encode_FeatureLevelRecord_v0(m, o, buffers):
    v1 = m.name.encode()
    n2 = len(v1) + 1
    o += UVARINT[n2] if n2 < 128 else uvarint(n2)
    o += v1
    if m.unknown_tags:
        o += pack_h(m.feature_level)
        t3 = []
        write_tags(o, t3, m.unknown_tags)
    else:
        o += pack_hx(m.feature_level)
    return o


def decode_FeatureLevelRecord_v0(b, p, end, elements):
    m = new(c_FeatureLevelRecord)
    m.unknown_tags = None
    n1 = b[p]
    p += 1
    if n1 > 127:
        n1, p = uvarint_rest(b, p, n1)
    q = p + n1 - 1
    if not p <= q <= end:
        raise Malformed
    m.name = b[p:q].decode()
    p = q
    m.feature_level, n2 = unpack_hB(b, p)
    p += 3
    if n2:
        m.unknown_tags, p, elements = unknown_tags(b, p, end, n2, elements)
    return m, p


def encode_RegisterControllerRecord_v0(m, o, buffers):
    if len(m.incarnation_id) != 16:
        raise Malformed
    a1 = m.end_points
    n2 = len(a1) + 1
    o += pack_i16st(m.controller_id, m.incarnation_id, m.zk_migration_ready)
    o += UVARINT[n2] if n2 < 128 else uvarint(n2)
    for e3 in a1:
        v4 = e3.name.encode()
        n5 = len(v4) + 1
        o += UVARINT[n5] if n5 < 128 else uvarint(n5)
        o += v4
        v6 = e3.host.encode()
        n7 = len(v6) + 1
        o += UVARINT[n7] if n7 < 128 else uvarint(n7)
        o += v6
        if e3.unknown_tags:
            o += pack_Hh(e3.port, e3.security_protocol)
            t8 = []
            write_tags(o, t8, e3.unknown_tags)
        else:
            o += pack_Hhx(e3.port, e3.security_protocol)
    a9 = m.features
    n10 = len(a9) + 1
    o += UVARINT[n10] if n10 < 128 else uvarint(n10)
    for e11 in a9:
        v12 = e11.name.encode()
        n13 = len(v12) + 1
        o += UVARINT[n13] if n13 < 128 else uvarint(n13)
        o += v12
        if e11.unknown_tags:
            o += pack_hh(e11.min_supported_version, e11.max_supported_version)
            t14 = []
            write_tags(o, t14, e11.unknown_tags)
        else:
            o += pack_hhx(e11.min_supported_version, e11.max_supported_version)
    if m.unknown_tags:
        t15 = []
        write_tags(o, t15, m.unknown_tags)
    else:
        o += b'\x00'
    return o


def decode_RegisterControllerRecord_v0(b, p, end, elements):
    m = new(c_RegisterControllerRecord)
    m.unknown_tags = None
    m.controller_id, m.incarnation_id, m.zk_migration_ready, n1 = unpack_i16stB(b, p)
    p += 22
    if n1 > 127:
        n1, p = uvarint_rest(b, p, n1)
    n1 -= 1
    elements -= n1
    if n1 < 0 or elements < 0 or n1 * 7 > end - p:
        raise Malformed
    m.end_points = a2 = []
    while n1:
        n1 -= 1
        e3 = new(c_ControllerEndpoint)
        e3.unknown_tags = None
        n4 = b[p]
        p += 1
        if n4 > 127:
            n4, p = uvarint_rest(b, p, n4)
        q = p + n4 - 1
        if not p <= q <= end:
            raise Malformed
        e3.name = b[p:q].decode()
        p = q
        n5 = b[p]
        p += 1
        if n5 > 127:
            n5, p = uvarint_rest(b, p, n5)
        q = p + n5 - 1
        if not p <= q <= end:
            raise Malformed
        e3.host = b[p:q].decode()
        p = q
        e3.port, e3.security_protocol, n6 = unpack_HhB(b, p)
        p += 5
        if n6:
            e3.unknown_tags, p, elements = unknown_tags(b, p, end, n6, elements)
        a2.append(e3)
    n7 = b[p]
    p += 1
    if n7 > 127:
        n7, p = uvarint_rest(b, p, n7)
    n7 -= 1
    elements -= n7
    if n7 < 0 or elements < 0 or n7 * 6 > end - p:
        raise Malformed
    m.features = a8 = []
    while n7:
        n7 -= 1
        e9 = new(c_ControllerFeature)
        e9.unknown_tags = None
        n10 = b[p]
        p += 1
        if n10 > 127:
            n10, p = uvarint_rest(b, p, n10)
        q = p + n10 - 1
        if not p <= q <= end:
            raise Malformed
        e9.name = b[p:q].decode()
        p = q
        e9.min_supported_version, e9.max_supported_version, n11 = unpack_hhB(b, p)
        p += 5
        if n11:
            e9.unknown_tags, p, elements = unknown_tags(b, p, end, n11, elements)
        a8.append(e9)
    n12 = b[p]
    p += 1
    if n12:
        m.unknown_tags, p, elements = unknown_tags(b, p, end, n12, elements)
    return m, p


def encode_RegisterBrokerRecord_v3(m, o, buffers):
    if len(m.incarnation_id) != 16:
        raise Malformed
    a1 = m.end_points
    n2 = len(a1) + 1
    o += pack_it16sq(m.broker_id, m.is_migrating_zk_broker, m.incarnation_id, m.broker_epoch)
    o += UVARINT[n2] if n2 < 128 else uvarint(n2)
    for e3 in a1:
        v4 = e3.name.encode()
        n5 = len(v4) + 1
        o += UVARINT[n5] if n5 < 128 else uvarint(n5)
        o += v4
        v6 = e3.host.encode()
        n7 = len(v6) + 1
        o += UVARINT[n7] if n7 < 128 else uvarint(n7)
        o += v6
        if e3.unknown_tags:
            o += pack_Hh(e3.port, e3.security_protocol)
            t8 = []
            write_tags(o, t8, e3.unknown_tags)
        else:
            o += pack_Hhx(e3.port, e3.security_protocol)
    a9 = m.features
    n10 = len(a9) + 1
    o += UVARINT[n10] if n10 < 128 else uvarint(n10)
    for e11 in a9:
        v12 = e11.name.encode()
        n13 = len(v12) + 1
        o += UVARINT[n13] if n13 < 128 else uvarint(n13)
        o += v12
        if e11.unknown_tags:
            o += pack_hh(e11.min_supported_version, e11.max_supported_version)
            t14 = []
            write_tags(o, t14, e11.unknown_tags)
        else:
            o += pack_hhx(e11.min_supported_version, e11.max_supported_version)
    v15 = m.rack
    if v15 is None:
        n16 = 0
        v15 = b''
    else:
        v15 = v15.encode()
        n16 = len(v15) + 1
    o += UVARINT[n16] if n16 < 128 else uvarint(n16)
    o += v15
    if m.log_dirs or m.unknown_tags:
        o += pack_tt(m.fenced, m.in_controlled_shutdown)
        t17 = []
        if m.log_dirs:
            o18 = bytearray()
            a19 = m.log_dirs
            n20 = len(a19) + 1
            o18 += UVARINT[n20] if n20 < 128 else uvarint(n20)
            o18 += pack_array_uuid(a19)
            t17.append((0, o18))
        write_tags(o, t17, m.unknown_tags)
    else:
        o += pack_ttx(m.fenced, m.in_controlled_shutdown)
    return o


def decode_RegisterBrokerRecord_v3(b, p, end, elements):
    m = new(c_RegisterBrokerRecord)
    m.unknown_tags = None
    m.log_dirs = []
    m.broker_id, m.is_migrating_zk_broker, m.incarnation_id, m.broker_epoch, n1 = unpack_it16sqB(b, p)
    p += 30
    if n1 > 127:
        n1, p = uvarint_rest(b, p, n1)
    n1 -= 1
    elements -= n1
    if n1 < 0 or elements < 0 or n1 * 7 > end - p:
        raise Malformed
    m.end_points = a2 = []
    while n1:
        n1 -= 1
        e3 = new(c_BrokerEndpoint)
        e3.unknown_tags = None
        n4 = b[p]
        p += 1
        if n4 > 127:
            n4, p = uvarint_rest(b, p, n4)
        q = p + n4 - 1
        if not p <= q <= end:
            raise Malformed
        e3.name = b[p:q].decode()
        p = q
        n5 = b[p]
        p += 1
        if n5 > 127:
            n5, p = uvarint_rest(b, p, n5)
        q = p + n5 - 1
        if not p <= q <= end:
            raise Malformed
        e3.host = b[p:q].decode()
        p = q
        e3.port, e3.security_protocol, n6 = unpack_HhB(b, p)
        p += 5
        if n6:
            e3.unknown_tags, p, elements = unknown_tags(b, p, end, n6, elements)
        a2.append(e3)
    n7 = b[p]
    p += 1
    if n7 > 127:
        n7, p = uvarint_rest(b, p, n7)
    n7 -= 1
    elements -= n7
    if n7 < 0 or elements < 0 or n7 * 6 > end - p:
        raise Malformed
    m.features = a8 = []
    while n7:
        n7 -= 1
        e9 = new(c_BrokerFeature)
        e9.unknown_tags = None
        n10 = b[p]
        p += 1
        if n10 > 127:
            n10, p = uvarint_rest(b, p, n10)
        q = p + n10 - 1
        if not p <= q <= end:
            raise Malformed
        e9.name = b[p:q].decode()
        p = q
        e9.min_supported_version, e9.max_supported_version, n11 = unpack_hhB(b, p)
        p += 5
        if n11:
            e9.unknown_tags, p, elements = unknown_tags(b, p, end, n11, elements)
        a8.append(e9)
    n12 = b[p]
    p += 1
    if n12 > 127:
        n12, p = uvarint_rest(b, p, n12)
    if n12 == 0:
        m.rack = None
    else:
        q = p + n12 - 1
        if not p <= q <= end:
            raise Malformed
        m.rack = b[p:q].decode()
        p = q
    m.fenced, m.in_controlled_shutdown, n13 = unpack_ttB(b, p)
    p += 3
    if n13:
        n13, p, elements = tag_count(b, p, end, n13, elements)
        u14 = []
        for _ in range(n13):
            p15 = p
            t16, p = uvarint(b, p)
            q17, p = uvarint(b, p)
            q17 += p
            if q17 > end:
                raise Malformed
            if t16 == 0:
                n18 = b[p]
                p += 1
                if n18 > 127:
                    n18, p = uvarint_rest(b, p, n18)
                n18 -= 1
                elements -= n18
                if n18 < 0 or elements < 0 or n18 * 16 > end - p:
                    raise Malformed
                m.log_dirs = array_uuid(b, p, n18)
                p += n18 * 16
                if p != q17:
                    raise Malformed
            else:
                u14.append(bytes(b[p15:q17]))
                p = q17
        if u14:
            m.unknown_tags = b''.join(u14)
    return m, p


def encode_BrokerRegistrationChangeRecord_v2(m, o, buffers):
    if m.fenced != 0 or m.in_controlled_shutdown != 0 or m.log_dirs or m.unknown_tags:
        o += pack_iq(m.broker_id, m.broker_epoch)
        t1 = []
        if m.fenced != 0:
            o2 = bytearray()
            o2 += pack_b(m.fenced)
            t1.append((0, o2))
        if m.in_controlled_shutdown != 0:
            o3 = bytearray()
            o3 += pack_b(m.in_controlled_shutdown)
            t1.append((1, o3))
        if m.log_dirs:
            o4 = bytearray()
            a5 = m.log_dirs
            n6 = len(a5) + 1
            o4 += UVARINT[n6] if n6 < 128 else uvarint(n6)
            o4 += pack_array_uuid(a5)
            t1.append((2, o4))
        write_tags(o, t1, m.unknown_tags)
    else:
        o += pack_iqx(m.broker_id, m.broker_epoch)
    return o


def decode_BrokerRegistrationChangeRecord_v2(b, p, end, elements):
    m = new(c_BrokerRegistrationChangeRecord)
    m.unknown_tags = None
    m.fenced = 0
    m.in_controlled_shutdown = 0
    m.log_dirs = []
    m.broker_id, m.broker_epoch, n1 = unpack_iqB(b, p)
    p += 13
    if n1:
        n1, p, elements = tag_count(b, p, end, n1, elements)
        u2 = []
        for _ in range(n1):
            p3 = p
            t4, p = uvarint(b, p)
            q5, p = uvarint(b, p)
            q5 += p
            if q5 > end:
                raise Malformed
            if t4 == 0:
                m.fenced, = unpack_b(b, p)
                p += 1
                if p != q5:
                    raise Malformed
            elif t4 == 1:
                m.in_controlled_shutdown, = unpack_b(b, p)
                p += 1
                if p != q5:
                    raise Malformed
            elif t4 == 2:
                n6 = b[p]
                p += 1
                if n6 > 127:
                    n6, p = uvarint_rest(b, p, n6)
                n6 -= 1
                elements -= n6
                if n6 < 0 or elements < 0 or n6 * 16 > end - p:
                    raise Malformed
                m.log_dirs = array_uuid(b, p, n6)
                p += n6 * 16
                if p != q5:
                    raise Malformed
            else:
                u2.append(bytes(b[p3:q5]))
                p = q5
        if u2:
            m.unknown_tags = b''.join(u2)
    return m, p


KEPT = {
    "encode_SnapshotHeaderRecord_v0": (1890454765, encode_SnapshotHeaderRecord_v0),
    "decode_SnapshotHeaderRecord_v0": (4113500885, decode_SnapshotHeaderRecord_v0),
    "encode_KRaftVersionRecord_v0": (3650084025, encode_KRaftVersionRecord_v0),
    "decode_KRaftVersionRecord_v0": (2886959869, decode_KRaftVersionRecord_v0),
    "encode_VotersRecord_v0": (4241228512, encode_VotersRecord_v0),
    "decode_VotersRecord_v0": (3528728124, decode_VotersRecord_v0),
    "encode_SnapshotFooterRecord_v0": (1352870976, encode_SnapshotFooterRecord_v0),
    "decode_SnapshotFooterRecord_v0": (51918856, decode_SnapshotFooterRecord_v0),
    "encode_LeaderChangeMessage_v0": (627698911, encode_LeaderChangeMessage_v0),
    "decode_LeaderChangeMessage_v0": (191444642, decode_LeaderChangeMessage_v0),
    "encode_FeatureLevelRecord_v0": (273414576, encode_FeatureLevelRecord_v0),
    "decode_FeatureLevelRecord_v0": (3913150226, decode_FeatureLevelRecord_v0),
    "encode_RegisterControllerRecord_v0": (540283833, encode_RegisterControllerRecord_v0),
    "decode_RegisterControllerRecord_v0": (112873133, decode_RegisterControllerRecord_v0),
    "encode_RegisterBrokerRecord_v3": (676958483, encode_RegisterBrokerRecord_v3),
    "decode_RegisterBrokerRecord_v3": (920706703, decode_RegisterBrokerRecord_v3),
    "encode_BrokerRegistrationChangeRecord_v2": (995312611, encode_BrokerRegistrationChangeRecord_v2),
    "decode_BrokerRegistrationChangeRecord_v2": (966702004, decode_BrokerRegistrationChangeRecord_v2),
}
