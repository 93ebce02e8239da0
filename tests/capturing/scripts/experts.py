"""A layer of experts as users write it: counts by bincount, exchanged, then tokens by all_to_all_single with splits."""

import torch
import torch.distributed as dist
from torch import nn

WIDTH, TOKENS, LOCAL, CHOSEN = 64, 256, 2, 2


class Exchange(torch.autograd.Function):
    """all_to_all_single whose gradient goes back the same way."""

    @staticmethod
    def forward(ctx, x, into, out):
        ctx.splits = (into, out)
        received = x.new_empty((sum(out), x.shape[1]))
        dist.all_to_all_single(received, x, out, into)
        return received

    @staticmethod
    def backward(ctx, gradient):
        into, out = ctx.splits
        sent = gradient.new_empty((sum(into), gradient.shape[1]))
        dist.all_to_all_single(sent, gradient.contiguous(), into, out)
        return sent, None, None


class Experts(nn.Module):
    def __init__(self, world):
        super().__init__()
        self.world = world
        self.router = nn.Linear(WIDTH, LOCAL * world, bias=False)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LOCAL))

    def forward(self, x):
        scores, chosen = self.router(x).softmax(-1).topk(CHOSEN, dim=-1)
        order = chosen.flatten().argsort(stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=LOCAL * self.world)
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts)
        into = counts.view(self.world, LOCAL).sum(1).tolist()
        out = theirs.view(self.world, LOCAL).sum(1).tolist()
        tokens = Exchange.apply(x[order // CHOSEN], into, out)
        places = torch.arange(LOCAL, device=x.device).repeat(self.world).repeat_interleave(theirs)
        mine = places.argsort(stable=True)
        sizes = theirs.view(self.world, LOCAL).sum(0).tolist()
        parts = [one(part) for one, part in zip(self.experts, tokens[mine].split(sizes), strict=True)]
        done = torch.empty_like(tokens).index_copy(0, mine, torch.cat(parts))
        back = Exchange.apply(done, out, into)
        return torch.zeros_like(x).index_add(0, order // CHOSEN, back * scores.flatten()[order].unsqueeze(1))


dist.init_process_group("nccl")
model = Experts(dist.get_world_size()).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.randn(TOKENS, WIDTH, device="cuda")).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
