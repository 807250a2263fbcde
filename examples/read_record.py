# A run record with pandas: python3 read_record.py DIRECTORY
import sys, numpy, pandas

points = pandas.read_json(f"{sys.argv[1]}/points.jsonl", lines=True)
rows = points[points.series.str.len() > 0].explode("series", ignore_index=True)
what = pandas.json_normalize(rows.parameters).pipe(lambda p: p.loc[:, p.astype(str).nunique() > 1])
load = lambda of: numpy.load(f"{sys.argv[1]}/{of['samples_file']}")[of["warm_up_n"]:]
how = {"joined": numpy.concatenate, "sum": sum, "largest": numpy.maximum.reduce}  # of the parts
samples = [how[s["samples_of"]["how"]]([load(part) for part in s["samples_of"]["parts"]])
           if s.get("samples_of") else load(s) for s in rows.series]
medians = [numpy.nanmedian(s) if s.size else numpy.nan for s in samples]
table = what.join(pandas.json_normalize(rows.series)).assign(median_ns=medians)
print(table[[*what, "quantity", "label", "n", "min_ns", "median_ns", "max_ns"]].to_string())
