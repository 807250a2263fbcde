# A verbs program in Python (apt install python3-pyverbs): two queue pairs of one process, of which
# one sends the other a message. `rdmalab exec -- python3 loopback.py` runs it on the soft device.
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.enums import *
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

PORT, FIRST_PSN, MESSAGE = 1, 7, b"a message"

devices = get_device_list()
if not devices:
    raise SystemExit("no RDMA device: try `rdmalab exec -- python3 loopback.py`")
context = Context(name=devices[0].name.decode())
port, gid = context.query_port(PORT), context.query_gid(PORT, 0)
pd, cq = PD(context), CQ(context, 16)
memory = MR(pd, 4096, IBV_ACCESS_LOCAL_WRITE)
init = QPInitAttr(qp_type=IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(max_send_wr=4, max_recv_wr=4))
sender, receiver = QP(pd, init, QPAttr(port_num=PORT)), QP(pd, init, QPAttr(port_num=PORT))

for qp, peer in [(sender, receiver), (receiver, sender)]:
    # Ethernet ports are addressed by GID, InfiniBand ports by LID.
    is_ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET
    way = AHAttr(port_num=PORT, dlid=port.lid, is_global=is_ethernet, gr=GlobalRoute(dgid=gid))
    attributes = QPAttr(port_num=PORT)
    attributes.path_mtu, attributes.ah_attr = port.active_mtu, way
    attributes.dest_qp_num, attributes.rq_psn, attributes.sq_psn = peer.qp_num, FIRST_PSN, FIRST_PSN
    attributes.timeout, attributes.retry_cnt, attributes.rnr_retry = 14, 7, 7
    qp.to_rts(attributes)

# The message lies at the start of the memory, and is received 2048 bytes behind.
memory.write(MESSAGE, len(MESSAGE))
to = SGE(memory.buf + 2048, len(MESSAGE), memory.lkey)
receiver.post_recv(RecvWR(wr_id=1, num_sge=1, sg=[to]))
of = SGE(memory.buf, len(MESSAGE), memory.lkey)
sender.post_send(SendWR(wr_id=2, opcode=IBV_WR_SEND, num_sge=1, sg=[of]))

left = 2
while left > 0:
    for completion in cq.poll(2)[1]:
        assert completion.status == IBV_WC_SUCCESS, completion
        left -= 1
print(f"{context.name} received {memory.read(len(MESSAGE), 2048).decode()!r}")
