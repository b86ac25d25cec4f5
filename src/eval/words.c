/* words.c: see words.h */
#include "eval/words.h"

#include <stdio.h>

const char *const rk_adj[RK_N_ADJ] = {
	"able", "agile", "alert", "amber", "ample", "ancient", "angry", "aqua", "arctic", "arid", "ashen", "awake", "azure",
	"bare", "bashful", "bitter", "black", "bland", "blank", "blind", "blond", "blue", "blunt", "bold", "brave", "breezy",
	"brief", "bright", "brisk", "brittle", "broad", "brown", "bubbly", "burly", "busy", "calm", "candid", "careful",
	"casual", "cheap", "cheerful", "chilly", "chubby", "civil", "classic", "clean", "clear", "clever", "clumsy", "coarse",
	"cold", "common", "complex", "cool", "cosy", "crafty", "crisp", "cruel", "cuddly", "curly", "curved", "damp", "daring",
	"dark", "dear", "decent", "deep", "dense", "distant", "dizzy", "double", "drab", "dreamy", "drowsy", "dry", "dull",
	"dusky", "dusty", "eager", "early", "earnest", "easy", "elastic", "elegant", "empty", "equal", "exact", "exotic",
	"faint", "fair", "faithful", "famous", "fancy", "fast", "feeble", "fierce", "fine", "firm", "flat", "fluffy", "fond",
	"formal", "fragile", "fragrant", "frank", "free", "fresh", "friendly", "frosty", "frugal", "full", "funny", "fuzzy",
	"gentle", "giant", "giddy", "glad", "gleaming", "gloomy", "glossy", "golden", "good", "graceful", "grand", "grateful",
	"gray", "great", "greedy", "green", "grim", "gritty", "grumpy", "handy", "happy", "hardy", "harsh", "hasty", "hazy",
	"heavy", "helpful", "hidden", "honest", "huge", "humble", "humid", "hungry", "icy", "idle", "immense", "jolly",
	"jovial", "joyful", "juicy", "keen", "kind", "large", "late", "lavish", "lazy", "lean", "level", "light", "likely",
	"limber", "little", "lively", "local", "lofty", "lone", "long", "loud", "lovely", "loyal", "lucky", "lush", "magic",
	"major", "marine", "massive", "mellow", "merry", "mighty", "mild", "minor", "misty", "modern", "modest", "moist",
	"muddy", "muted", "narrow", "native", "neat", "nervous", "new", "nimble", "noble", "noisy", "normal", "novel", "numb",
	"oaken", "odd", "old", "olden", "open", "oval", "pale", "patient", "peaceful", "perky", "plain", "playful", "pleasant",
	"plump", "polite", "proper", "proud", "prudent", "pure", "purple", "quaint", "quick", "quiet", "rainy", "rapid", "rare",
	"ready", "regal", "rich", "rigid", "ripe", "robust", "rocky", "rosy", "rough", "round", "royal", "ruddy", "rugged",
	"rural", "rusty", "sandy", "scarlet", "secret", "serene", "shaggy", "shallow", "sharp", "shiny", "short", "shy",
	"silent", "silky", "simple", "sincere", "skilful", "sleek", "sleepy", "slender", "slim", "slow", "small", "smoky",
	"smooth", "sober", "soft", "solar", "solemn", "solid", "sour", "spare", "sparse", "speedy", "spicy", "steady", "steep",
	"sticky", "stiff", "still", "stormy", "stout", "strange", "strict", "strong", "sturdy", "subtle", "sudden", "sunny",
	"supple", "sure", "sweet", "swift", "tall", "tame", "tan", "tart", "tender", "thin", "thorny", "tidy", "tight", "tiny",
	"tired", "tough", "tranquil", "trim", "true", "upbeat", "upper", "urban", "useful", "vague", "valiant", "vast", "vivid",
	"warm", "wary", "watchful", "weary", "wide", "wild", "windy", "wise", "wooden", "woolly", "worthy", "yellow", "young",
	"zesty",
};

const char *const rk_verb[RK_N_VERB] = {
	"accept", "achieve", "admire", "adopt", "advise", "agree", "allow", "amuse", "announce", "answer", "appear", "applaud",
	"argue", "arrange", "arrive", "assemble", "assist", "attach", "attend", "balance", "bargain", "become", "begin",
	"behave", "believe", "belong", "blend", "borrow", "bounce", "breathe", "bring", "build", "burn", "calculate", "capture",
	"carry", "celebrate", "change", "chase", "choose", "climb", "collect", "combine", "compare", "compose", "connect",
	"consider", "contain", "copy", "count", "cover", "create", "cross", "cultivate", "decide", "declare", "decorate",
	"deliver", "depend", "describe", "deserve", "design", "develop", "digest", "discover", "divide", "drift", "drive",
	"earn", "embrace", "employ", "encourage", "enjoy", "enter", "escape", "examine", "exchange", "expand", "expect",
	"explain", "explore", "extend", "fasten", "fetch", "float", "follow", "forgive", "gather", "glide", "govern", "grow",
	"guess", "guide", "happen", "hesitate", "imagine", "improve", "include", "increase", "inform", "inspect", "invent",
	"invite", "join", "juggle", "launch", "learn", "lend", "listen", "measure", "mention", "mingle", "multiply", "narrate",
	"navigate", "notice", "obey", "observe", "obtain", "offer", "operate", "order", "paint", "pause", "perform", "persuade",
	"plant", "polish", "practise", "prepare", "present", "prevent", "promise", "protect", "provide", "publish", "punish",
	"pursue", "question", "reach", "realise", "receive", "recite", "recommend", "reduce", "reflect", "refuse", "rejoice",
	"release", "remain", "remember", "repair", "repeat", "replace", "reply", "rescue", "respond", "restore", "return",
	"reveal", "rinse", "sail", "satisfy", "scatter", "search", "separate", "settle", "shiver", "signify", "solve", "spread",
	"squeeze", "stumble", "succeed", "suggest", "surround", "survive", "swim", "tempt", "thrive", "trace", "travel",
	"tremble", "trust", "understand", "unite", "vanish", "venture", "visit", "wander", "welcome", "whisper", "wonder",
	"wrestle", "write", "yield",
};

const char *rk_word(int i)
{
	if (i < RK_N_NOUN)
		return rk_noun[i];
	i -= RK_N_NOUN;
	return i < RK_N_ADJ ? rk_adj[i] : rk_verb[i - RK_N_ADJ];
}

const char *rk_word_compound(int i, char out[RK_WORD_MAX])
{
	int first = i / (RK_N_NOUN - 1), second = i % (RK_N_NOUN - 1);

	second += second >= first;	/* never a noun twice */
	snprintf(out, RK_WORD_MAX, "%s%s", rk_noun[first], rk_noun[second]);
	return out;
}
